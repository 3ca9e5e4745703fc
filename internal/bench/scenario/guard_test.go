package scenario

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/lab/process"
)

// TestAProcessThatEndsEndsTheScenario: with its name and the end of its log; one that the
// scenario kills does not.
func TestAProcessThatEndsEndsTheScenario(t *testing.T) {
	dir := t.TempDir()
	of := func(name, script string) process.Spec {
		p := process.Spec{
			Name: name, Owner: dir, Command: []string{"/bin/sh", "-c", script}, Bound: true,
			Log: filepath.Join(dir, name+".log"), Identity: filepath.Join(dir, name+".process"),
		}
		t.Cleanup(func() {
			if err := p.Kill(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	s := &stage{}
	killed, lives := of("killed", "exec sleep 600"), of("lives", "exec sleep 600")
	for _, p := range []process.Spec{killed, lives} {
		if err := s.launch(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.kill(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	if err := s.cast.missing(); err != nil {
		t.Errorf("one was killed as it should be, and one runs: %v", err)
	}
	breaks := of("breaks", "echo out of cheese; exec sleep 600")
	if err := s.launch(breaks); err != nil {
		t.Fatal(err)
	}
	ctx, release := s.guard(t.Context())
	defer release()
	said := func(ctx context.Context) (bool, error) {
		return strings.Contains(breaks.LastLines(), "out of cheese"), nil
	}
	if err := until(ctx, "it has something to say", 10*time.Millisecond, time.Minute, said); err != nil {
		t.Fatal(err)
	}
	if err := breaks.Kill(t.Context()); err != nil { // not by the stage
		t.Fatal(err)
	}
	err := until(ctx, "a wait in vain", 10*time.Millisecond, time.Minute, func(context.Context) (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "breaks ended") || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("the wait ended with %v", err)
	}
}
