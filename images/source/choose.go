package source

import (
	"context"
	"fmt"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Choose picks the source that is called name. For images.Auto it takes the release source where that can make a whole image from
// here, else the modules source, and says which and why.
func Choose(ctx context.Context, name images.SourceName, release, modules Source) (chosen Source, why string, err error) {
	switch name {
	case images.Release:
		return release, "as asked", nil
	case images.Modules:
		return modules, "as asked", nil
	case images.Auto:
		for _, r := range release.Preflight(ctx) {
			if r.State != check.Passed {
				return modules, r.Got, nil
			}
		}
		return release, "upstream answers", nil
	}
	return nil, "", &UnknownError{Name: name}
}

// UnknownError says that no source has this name.
type UnknownError struct{ Name images.SourceName }

func (e *UnknownError) Error() string { return fmt.Sprintf("there is no image source %q", e.Name) }

// Hint is the next action.
func (e *UnknownError) Hint() string {
	return fmt.Sprintf("use %s, %s or %s", images.Auto, images.Release, images.Modules)
}
