// Command atoll is the CLI and the agent: what administrators type, and what runs
// beside each member. It is a thin shell over internal/command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // time zones of change windows, also in an image without them

	_ "k8s.io/client-go/plugin/pkg/client/auth/exec" // credential plugins that a kubeconfig may name

	"atoll.dev/atoll/internal/command"
	"atoll.dev/atoll/internal/phrase"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := command.NewRootCommand().ExecuteContext(ctx); {
	case err == nil:
	case command.IsPrintedAnswer(err):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "atoll: "+phrase.EscapeText(err.Error()))
		os.Exit(command.ExitCode(err))
	}
}
