package exec

import (
	"context"
	"os"
)

// watchTerminalSize sends nothing on Windows: the command keeps its first size.
func watchTerminalSize(context.Context) <-chan os.Signal { return nil }
