package script_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll.dev/atoll/internal/kinds/script"
)

// Allocations of a warm answer are counts, which do not depend on the machine.
func TestAllocations(t *testing.T) {
	wc := parseObject(t, flinkYAML)
	for name, tc := range map[string]struct {
		most float64
		ask  func() error
	}{
		"lua health": {700, func() func() error {
			c := readTestdata(t, "karmada.yaml")
			return func() error { _, _, err := c.AssessHealth(wc); return err }
		}()},
		"lua revise": {800, func() func() error {
			c := readTestdata(t, "karmada.yaml")
			return func() error { _, _, err := c.ReviseReplicas(wc, 5); return err }
		}()},
		"cel health": {60, func() func() error {
			c := readTestdata(t, "interpreter.yaml")
			return func() error { _, _, err := c.AssessHealth(wc); return err }
		}()},
	} {
		got := testing.AllocsPerRun(20, func() {
			if err := tc.ask(); err != nil {
				t.Fatal(err)
			}
		})
		if got > tc.most {
			t.Errorf("%s: %.0f allocations, and %.0f are allowed", name, got, tc.most)
		}
	}
}

// Sources that are hard to compile end within the bounds.
func TestHostileSources(t *testing.T) {
	const most = 31 << 10
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, text := range map[string]string{
		"parentheses": "return " + strings.Repeat("(", most/2) + "1" + strings.Repeat(")", most/2-10),
		"tables":      "return " + strings.Repeat("{", most/2) + strings.Repeat("}", most/2-10),
		"functions":   strings.Repeat("function f() ", most/20) + strings.Repeat(" end", most/20),
		"calls":       "return " + strings.Repeat("f(", most/3) + strings.Repeat(")", most/3),
		"sums":        "return 1" + strings.Repeat("+a", most/2),
		"powers":      "return 1" + strings.Repeat("^a", most/2),
		"texts":       "return a" + strings.Repeat("..a", most/3),
		"nots":        "return {" + strings.Repeat("not ", most/4) + "a}",
		"minuses":     "return " + strings.Repeat("- ", most/2) + "a",
		"indexes":     "return a" + strings.Repeat("[a]", most/3),
		"ands":        "return a" + strings.Repeat(" and a", most/6),
		"names":       "local " + strings.TrimSuffix(strings.Repeat("a,", most/2), ","),
		"ifs":         strings.Repeat("if a then ", most/14) + strings.Repeat("end ", most/14),
		"brackets":    "return [" + strings.Repeat("=", most) + "[",
		"a text":      `return "` + strings.Repeat("x", most),
		"numbers":     "return " + strings.Repeat("9", most),
		"too long":    strings.Repeat(" ", 33<<10),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := script.CPUTime()
		list, err := script.CompileFile("x.lua", []byte(text))
		took := script.CPUTime() - began
		runtime.ReadMemStats(&after)
		made := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %v, %d MB, %.100v", name, took.Round(time.Millisecond), made, err)
		if took > time.Second && !script.RaceEnabled || made > 64 {
			t.Errorf("%s: took %v and %d MB", name, took, made)
		}
		if err == nil {
			if _, _, err := list[0].AssessHealth(map[string]any{}); err == nil {
				t.Errorf("%s: answers", name)
			}
		}
	}
}

// Concurrent answers are independent, although they share the compiled script and its libraries.
func TestAtOnce(t *testing.T) {
	lua, cel := readTestdata(t, "karmada.yaml"), readTestdata(t, "interpreter.yaml")
	wc := parseObject(t, flinkYAML)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 30 {
				want := int64(i*100 + n)
				for _, c := range []*script.Customization{lua, cel} {
					got, _, err := c.ReviseReplicas(wc, want+1)
					if err != nil {
						t.Error(err)
						return
					}
					replicas := got["spec"].(map[string]any)["taskManager"].(map[string]any)["replicas"]
					if replicas != want && replicas != want+1 {
						t.Errorf("%v replicas, want %d", replicas, want)
					}
				}
			}
		})
	}
	wg.Wait()
}

// A script can join the statuses of a fleet of this size. A larger one is an error with a
// reason.
func TestItemsThatFit(t *testing.T) {
	c := readTestdata(t, "karmada.yaml")
	for _, n := range []int{1000, 5000, 50000} {
		items := make([]any, n)
		for i := range items {
			items[i] = map[string]any{"clusterName": fmt.Sprint("member-", i), "status": map[string]any{"replicas": int64(1)}}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		status, _, err := c.AggregateStatus(map[string]any{"kind": "X", "metadata": map[string]any{"name": "x"}}, items)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		t.Logf("%d: %v, %d kB, %v", n, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>10, err)
		if fits := n <= 5000; fits && (err != nil || status["replicas"] != int64(n)) || !fits && (err == nil || !strings.Contains(err.Error(), "12 MiB")) {
			t.Errorf("%d items: %.50v, %v", n, status, err)
		}
	}
}
