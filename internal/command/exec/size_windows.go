package exec

import (
	"context"
	"os"
)

// resized is never told there: the command keeps the size that it began with.
func resized(context.Context) <-chan os.Signal { return nil }
