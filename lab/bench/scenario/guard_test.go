package scenario

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/lab/process"
)

// TestAProcessThatEndsEndsTheScenario: with its name and the end of its log; one that the
// scenario kills does not.
func TestAProcessThatEndsEndsTheScenario(t *testing.T) {
	dir := t.TempDir()
	of := func(name, script string) process.ProcessSpec {
		p := process.ProcessSpec{
			Name: name, Owner: dir, Command: []string{"/bin/sh", "-c", script}, EndsWithStarter: true,
			Log: filepath.Join(dir, name+".log"), Identity: filepath.Join(dir, name+".process"),
		}
		t.Cleanup(func() {
			if err := p.KillProcess(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	s := &testbed{}
	killed, lives := of("killed", "exec sleep 600"), of("lives", "exec sleep 600")
	for _, p := range []process.ProcessSpec{killed, lives} {
		if err := s.launchRequired(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.killProcess(t.Context(), killed); err != nil {
		t.Fatal(err)
	}
	if err := s.required.missingProcess(); err != nil {
		t.Errorf("one was killed as it should be, and one runs: %v", err)
	}
	breaks := of("breaks", "echo out of cheese; exec sleep 600")
	if err := s.launchRequired(breaks); err != nil {
		t.Fatal(err)
	}
	ctx, release := s.guardProcesses(t.Context())
	defer release()
	said := func(ctx context.Context) (bool, error) {
		return strings.Contains(breaks.LastLines(), "out of cheese"), nil
	}
	if err := pollUntil(ctx, "it has something to say", 10*time.Millisecond, time.Minute, said); err != nil {
		t.Fatal(err)
	}
	if err := breaks.KillProcess(t.Context()); err != nil { // not by the stage
		t.Fatal(err)
	}
	err := pollUntil(ctx, "a wait in vain", 10*time.Millisecond, time.Minute, func(context.Context) (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "breaks ended") || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("the wait ended with %v", err)
	}
}
