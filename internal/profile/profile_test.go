package profile

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
)

func TestEveryKindIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	cmd := AddProfileFlag(&cobra.Command{Use: "x", SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		for _, c := range []struct {
			signal syscall.Signal
			file   string
		}{{syscall.SIGUSR1, "cpu-*-2.pprof"}, {syscall.SIGUSR2, "goroutine-*-1.pprof"}} {
			if err := syscall.Kill(os.Getpid(), c.signal); err != nil {
				return err
			}
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				found, err := filepath.Glob(filepath.Join(dir, c.file))
				return len(found) == 1, err
			}); err != nil {
				return err
			}
		}
		return nil
	}})
	cmd.SetArgs([]string{"--profile-dir", dir})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cpu-*-1", "cpu-*-2", "heap-*-1", "heap-*-2", "allocs-*-2", "mutex-*-2", "block-*-2", "goroutine-*-2"} {
		found, err := filepath.Glob(filepath.Join(dir, file+".pprof"))
		if err != nil || len(found) != 1 {
			t.Errorf("%s: found %v, %v", file, found, err)
			continue
		}
		if info, err := os.Stat(found[0]); err != nil || info.Size() == 0 {
			t.Errorf("%s is empty: %v", found[0], err)
		}
	}
}
