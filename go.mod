module github.com/cgoa-labs/labctl

go 1.27
