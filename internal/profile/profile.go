// Package profile lets a command write profiles of itself to files.
//
// Contract: without --profile-dir nothing is recorded and nothing is paid. With it,
//
//   - the CPU is sampled from the start to the end, into cpu-PID-N.pprof; SIGUSR1
//     ends one file and begins the next, so that what lies between two of them has a
//     file of its own;
//   - heap, allocs, mutex, block and goroutine are written at the end and on SIGUSR2,
//     as KIND-PID-N.pprof. Contention is sampled: one mutex event in 100, and blocking
//     of 10 µs and more.
//
// It stands on runtime/pprof alone, so that an agent that has it stays small, and
// opens no port. One Recorder at a time in a process.
package profile

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	mutexFraction = 100
	blockRate     = 10_000 // ns
)

// kinds that are written besides the CPU's.
var kinds = []string{"heap", "allocs", "mutex", "block", "goroutine"}

// AddProfileFlag adds --profile-dir to the command, and records while it runs.
func AddProfileFlag(cmd *cobra.Command) *cobra.Command {
	var dir string
	cmd.Flags().StringVar(&dir, "profile-dir", "", "write CPU, heap, allocation, mutex and block profiles there at the end; SIGUSR1 begins another CPU profile, SIGUSR2 writes the others at once")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return run(cmd, args)
		}
		r, err := Start(dir)
		if err != nil {
			return err
		}
		return errors.Join(run(cmd, args), r.Stop())
	}
	return cmd
}

// ProfileRecorder writes profiles until Stop.
type ProfileRecorder struct {
	dir     string
	signals chan os.Signal
	done    sync.WaitGroup
	cpu     *os.File
	// begun and written count the files, for their names.
	begun, written int
	err            error
}

// Start starts recording into the directory, which is made.
func Start(dir string) (*ProfileRecorder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for profiles: %w", err)
	}
	r := &ProfileRecorder{dir: dir, signals: make(chan os.Signal, 1)}
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)
	if err := r.startCPUProfile(); err != nil {
		return nil, err
	}
	signal.Notify(r.signals, syscall.SIGUSR1, syscall.SIGUSR2)
	r.done.Go(func() {
		for s := range r.signals {
			if s == syscall.SIGUSR2 {
				r.err = errors.Join(r.err, r.writeProfiles())
				continue
			}
			r.err = errors.Join(r.err, r.stopCPUProfile(), r.startCPUProfile())
		}
	})
	return r, nil
}

// Stop ends the recording, writes the remaining data, and returns the errors of all writes.
func (r *ProfileRecorder) Stop() error {
	signal.Stop(r.signals)
	close(r.signals)
	r.done.Wait()
	err := errors.Join(r.err, r.stopCPUProfile(), r.writeProfiles())
	runtime.SetMutexProfileFraction(0)
	runtime.SetBlockProfileRate(0)
	return err
}

func (r *ProfileRecorder) profilePath(kind string, n int) string {
	return filepath.Join(r.dir, fmt.Sprintf("%s-%d-%d.pprof", kind, os.Getpid(), n))
}

func (r *ProfileRecorder) startCPUProfile() error {
	r.begun++
	f, err := os.Create(r.profilePath("cpu", r.begun))
	if err != nil {
		return fmt.Errorf("begin a CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(fmt.Errorf("begin a CPU profile: %w", err), f.Close())
	}
	r.cpu = f
	return nil
}

func (r *ProfileRecorder) stopCPUProfile() error {
	if r.cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := r.cpu.Close()
	r.cpu = nil
	if err != nil {
		return fmt.Errorf("end a CPU profile: %w", err)
	}
	return nil
}

// writeProfiles writes all other profiles.
func (r *ProfileRecorder) writeProfiles() error {
	r.written++
	runtime.GC() // what is dead does not count
	var errs []error
	for _, kind := range kinds {
		f, err := os.Create(r.profilePath(kind, r.written))
		if err == nil {
			err = errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write the %s profile: %w", kind, err))
		}
	}
	return errors.Join(errs...)
}
