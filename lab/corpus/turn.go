package corpus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/lab/corpus/compare"
)

// The phases of a turn, each with an equal part of the manifest's time.
const phases = 4

// pollPause is the first pause between two looks at the clusters. Each pause is twice the one before, up
// to maxPollPause: a look that lists everything would take the machine from the clusters.
const (
	pollPause    = 100 * time.Millisecond
	maxPollPause = 800 * time.Millisecond
)

// manifestTestRun is the time that a manifest has the clusters for itself.
type manifestTestRun struct {
	*installation
	manifest manifest
	dir      string // a directory for each cluster that kubectl writes to is below
	limit    time.Duration
	expected []compare.ExpectedDifference

	mode    writeMode
	objects []*unstructured.Unstructured // as the user wrote them
	// unreadable is the error of a stream whose objects cannot be compared.
	unreadable error
	before     map[string]contents // of the clusters before the turn
	last       map[string]contents // at the last look; nil where the clusters may have changed
	// names are the generated names by cluster, in the order of objects; other objects have none.
	names map[string][]string
	found []compare.Difference
}

// phase does a part of the turn within its time.
type phase func(ctx context.Context) error

// runWithCleanup does the whole turn. The clusters are cleaned in any case.
func (t *manifestTestRun) runWithCleanup(ctx context.Context) error {
	if err := t.runPhaseBounded(ctx, t.prepareRun); err != nil {
		return err
	}
	err := t.runPhases(ctx)
	if cleanErr := t.runPhaseBounded(ctx, t.sweepLeftovers); err == nil {
		err = cleanErr
	}
	return err
}

func (t *manifestTestRun) runPhases(ctx context.Context) error {
	for _, one := range []phase{t.applyManifest, t.compareLiveObjects, t.deleteManifest} {
		if err := t.runPhaseBounded(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (t *manifestTestRun) runPhaseBounded(ctx context.Context, one phase) error {
	ctx, cancel := context.WithTimeout(ctx, t.limit/phases)
	defer cancel()
	return one(ctx)
}

// writtenClusters returns the clusters that kubectl writes to.
func (t *manifestTestRun) writtenClusters() []*cluster { return []*cluster{t.hub, t.control} }

// prepareRun renders the manifest and lists what the clusters hold.
func (t *manifestTestRun) prepareRun(ctx context.Context) error {
	stream, err := renderManifest(ctx, t.manifest)
	if err != nil {
		return err
	}
	if t.mode, err = parseWriteMode(stream); err != nil {
		return err
	}
	// kubectl reports the error, too: both clusters have to give the same answer.
	t.objects, t.unreadable = parseObjects(stream)
	t.names = map[string][]string{}
	for _, c := range t.writtenClusters() {
		if err := os.MkdirAll(t.dirOf(c), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(t.dirOf(c), streamFile), stream, 0o600); err != nil {
			return err
		}
	}
	if t.before == nil {
		t.before, err = t.listAllContents(ctx)
	}
	return err
}

// streamFile is the manifest as kubectl reads it.
const streamFile = "manifest.yaml"

func (t *manifestTestRun) dirOf(c *cluster) string { return filepath.Join(t.dir, c.name) }

// listAllContents lists the contents of all clusters at once.
func (t *manifestTestRun) listAllContents(ctx context.Context) (map[string]contents, error) {
	all := t.allClusters()
	found := make([]contents, len(all))
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range all {
		group.Go(func() (err error) {
			found[i], err = c.listStoredObjects(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := map[string]contents{}
	for i, c := range all {
		out[c.name] = found[i]
	}
	return out, nil
}

// runKubectlOnBoth runs kubectl with the same arguments against the hub and the control.
func (t *manifestTestRun) runKubectlOnBoth(ctx context.Context, args ...string) (hub, control compare.CommandAnswer, err error) {
	answers := map[*cluster]*compare.CommandAnswer{t.hub: &hub, t.control: &control}
	group, ctx := errgroup.WithContext(ctx)
	for c, answer := range answers {
		group.Go(func() (err error) {
			*answer, err = t.runKubectlAt(ctx, c, args...)
			return err
		})
	}
	return hub, control, group.Wait()
}

func (t *manifestTestRun) runKubectlAt(ctx context.Context, c *cluster, args ...string) (compare.CommandAnswer, error) {
	// All turns share the cache of a cluster.
	cache := filepath.Join(filepath.Dir(t.dir), "cache-"+c.name)
	all := append(slices.Clone(args), "--kubeconfig", c.kubeconfig, "--cache-dir", cache)
	answer, err := runKubectl(ctx, t.dirOf(c), all...)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", c.name, err)
	}
	return answer, nil
}

// addDifferences appends differences to those of the turn.
func (t *manifestTestRun) addDifferences(found ...compare.Difference) {
	t.found = append(t.found, found...)
}

// owningKinds are kinds whose deletion takes along other objects, at a time of its own.
var owningKinds = []string{"Namespace", "CustomResourceDefinition", "ServiceAccount"}

// hasOwningKinds reports whether the manifest has objects of owningKinds.
func (t *manifestTestRun) hasOwningKinds() bool {
	return slices.ContainsFunc(t.objects, func(o *unstructured.Unstructured) bool { return slices.Contains(owningKinds, o.GetKind()) })
}

// awaitExpectedDifferences polls until look returns only expected differences, and all entries for this manifest
// alone that isDue selects have occurred. At the end of ctx it returns the differences of the last look.
// The result of look does not count while settled is false.
func (t *manifestTestRun) awaitExpectedDifferences(ctx context.Context, isDue func(compare.ExpectedDifference) bool, look func(context.Context) (found []compare.Difference, settled bool, err error)) ([]compare.Difference, error) {
	var last []compare.Difference
	lastErr := fmt.Errorf("the clusters were not read in time")
	for pause := pollPause; ; pause = min(2*pause, maxPollPause) {
		found, settled, err := look(ctx)
		switch {
		case err == nil:
			last, lastErr = found, nil
			if settled && t.isExpected(found, isDue) {
				return found, nil
			}
		case ctx.Err() == nil && lastErr != nil:
			lastErr = err
		}
		select {
		case <-ctx.Done():
			return last, lastErr
		case <-time.After(pause):
		}
	}
}

func (t *manifestTestRun) isExpected(found []compare.Difference, isDue func(compare.ExpectedDifference) bool) bool {
	explained, used := compare.SetReasons(t.manifest.name, slices.Concat(t.found, found), t.expected)
	if compare.HasUnexpected(explained[len(t.found):]) {
		return false
	}
	for i, e := range t.expected {
		if !used[i] && e.NamesOneManifest() && e.IsForManifest(t.manifest.name) && isDue(e) {
			return false
		}
	}
	return true
}

// isLeftoverEntry selects the entries about objects that stay behind.
func isLeftoverEntry(e compare.ExpectedDifference) bool { return e.Path == compare.PathLeft }

// isLiveEntry selects the entries about objects while they exist.
func isLiveEntry(e compare.ExpectedDifference) bool {
	return !isLeftoverEntry(e) && !strings.HasPrefix(e.Path, answerDelete) && !strings.HasPrefix(e.Path, answerGet+" -o")
}
