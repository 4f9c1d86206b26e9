module github.com/cgoa-labs/labctl/images/modules/pause

go 1.27.0
