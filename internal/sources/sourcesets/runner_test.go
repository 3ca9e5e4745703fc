package sourcesets

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// BundlesHolding returns no Bundle.
func (h *hub) BundlesHolding(atoll.ItemKey) []policymatch.BundleID { return nil }

// Fetch answers as the repository of the tests.
func (h *hub) Fetch(_ context.Context, r fetch.Request) (*fetch.Answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails != nil {
		return nil, h.fails
	}
	if r.Descends != nil {
		h.compared++
		return &fetch.Answer{Descends: h.descends}, nil
	}
	a := &fetch.Answer{}
	for _, w := range r.Wants {
		a.Contents = append(a.Contents, h.listContent(w))
	}
	return a, nil
}

// A running hub reads a Repository in the checks that it has anyway, and makes, changes and deletes Sources by what the checks list.
func TestARunningHubFollowsARepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, appDirs)
		h.cfg.Sources, h.cfg.Bundles, h.cfg.Objects, h.cfg.Fetcher = h.tables.Sources, h.tables.Bundles, h.tables.Templates, h
		h.setFiles("c1", "apps/web/a", "apps/db/a")
		ctx, stop := context.WithCancel(t.Context())
		run := NewRunner(h.cfg, h)
		h.mu.Lock()
		var done sync.WaitGroup
		done.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
		expect := func(when string, after time.Duration, writes, status string) {
			t.Helper()
			h.mu.Unlock()
			time.Sleep(after)
			synctest.Wait()
			slices.Sort(h.store.writes)
			h.mu.Lock() // synctest orders nothing between this goroutine and one that a timer wakes
			h.expectStep(when, strings.Join(h.store.writes, ", "), writes, status)
			h.store.writes = nil
		}
		expect("at once", maxChangeDebounce, "apply db, apply web", good)
		listed := h.listed
		expect("at rest", 3*v1alpha1.DefaultRepositoryInterval, "", good)
		if h.listed != listed {
			t.Errorf("%d listings at rest", h.listed-listed)
		}
		h.setFiles("c2", "apps/web/a", "apps/new/a")
		expect("a commit", v1alpha1.DefaultRepositoryInterval+2*maxChangeDebounce, "apply new, delete db", good)
		if h.compared != 1 {
			t.Errorf("%d comparisons", h.compared)
		}
		h.setFiles("c3", "README.md")
		expect("an empty tree", v1alpha1.DefaultRepositoryInterval+2*maxChangeDebounce, "", "Applied=True/Applied Generated=False/GeneratorEmpty new GeneratorEmpty web GeneratorEmpty")
		h.fails = render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
		expect("a server that is away", 2*v1alpha1.DefaultRepositoryInterval, "", "Applied=True/Applied Generated=False/RepositoryUnreachable new GeneratorEmpty web GeneratorEmpty")
		h.fails = nil
		h.setFiles("c4", "apps/web/a", "apps/new/a")
		expect("both are back", 2*v1alpha1.DefaultRepositoryInterval, "", good)
		h.mu.Unlock()
		stop()
		done.Wait()
	})
}
