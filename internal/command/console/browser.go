package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// openerTime is how long a program that opens links may take to fail. One that still runs then has opened the browser.
const openerTime = 3 * time.Second

// errNoBrowser: this machine has no browser that the command can open.
var errNoBrowser = errors.New("no browser is known here")

// openBrowser opens a link in the person's browser.
func openBrowser(ctx context.Context, link string) error {
	opener := findOpener(runtime.GOOS, os.Getenv)
	if opener == nil {
		return errNoBrowser
	}
	path, err := exec.LookPath(opener[0])
	if err != nil {
		return errNoBrowser
	}
	// The browser may be a child of the opener, and stays after the command.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, append(opener[1:], link)...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", opener[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.NewTimer(openerTime)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: %w", opener[0], err)
		}
	case <-late.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// findOpener returns the program that opens links, with its first arguments; nil: there is none, as on a server without a desktop.
func findOpener(system string, getenv func(string) string) []string {
	switch system {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" && getenv("BROWSER") == "" {
		return nil
	}
	return []string{"xdg-open"}
}
