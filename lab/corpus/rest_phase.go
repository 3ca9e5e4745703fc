package corpus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/lab/corpus/compare"
)

// compareLeftovers compares what is left in each cluster after the manifest is deleted: members with the
// control in both directions, and the hub for objects that the control does not have.
func (t *manifestTestRun) compareLeftovers(ctx context.Context) error {
	look := func(ctx context.Context) ([]compare.Difference, bool, error) {
		now, err := t.listAllContents(ctx)
		if err != nil {
			return nil, false, err
		}
		t.last = now
		return t.diffLeftovers(now), true, nil
	}
	found, err := t.awaitExpectedDifferences(ctx, isLeftoverEntry, look)
	t.addDifferences(found...)
	return err
}

func (t *manifestTestRun) diffLeftovers(now map[string]contents) (out []compare.Difference) {
	control := t.createdObjectNames(controlName, now)
	for _, c := range t.allClusters() {
		if c == t.control {
			continue
		}
		rest := t.createdObjectNames(c.name, now)
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			if !control[name] {
				out = append(out, compare.Difference{Check: compare.Clean, Cluster: c.name, Object: name, Path: compare.PathLeft, Control: "absent", Atoll: "present"})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(control)) {
			if c != t.hub && !rest[name] {
				out = append(out, compare.Difference{Check: compare.Clean, Cluster: c.name, Object: name, Path: compare.PathLeft, Control: "present", Atoll: "absent"})
			}
		}
	}
	return out
}

// createdObjectNames returns the names of the objects that a cluster has now and had not before the turn.
func (t *manifestTestRun) createdObjectNames(cluster string, now map[string]contents) map[string]bool {
	out := map[string]bool{}
	for o := range now[cluster] {
		if !t.before[cluster][o] {
			out[o.displayName()] = true
		}
	}
	return out
}

// sweepLeftovers removes what the turn left in the namespaces of the manifest, and its own objects, from
// all clusters, and waits until it is gone.
func (t *manifestTestRun) sweepLeftovers(ctx context.Context) error {
	for pause := pollPause; ; pause = min(2*pause, maxPollPause) {
		now, err := t.last, error(nil)
		if now == nil {
			now, err = t.listAllContents(ctx)
		}
		if err != nil {
			return fmt.Errorf("what the manifest left: %w", err)
		}
		left, err := t.deleteLeftovers(ctx, now)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			t.last = now
			return nil
		}
		t.last = nil
		if pauseFor(ctx, pause); ctx.Err() != nil {
			return fmt.Errorf("not removed in time: %s", strings.Join(left[:min(len(left), 5)], ", "))
		}
	}
}

// deleteLeftovers deletes the objects that are the turn's to remove, and returns their names.
func (t *manifestTestRun) deleteLeftovers(ctx context.Context, now map[string]contents) (left []string, err error) {
	namespaces := t.manifestNamespaces()
	for _, c := range t.allClusters() {
		for o := range now[c.name] {
			if t.before[c.name][o] || !t.isOfManifest(o, namespaces) {
				continue
			}
			left = append(left, c.name+" "+o.displayName())
			if err := c.deleteObject(ctx, o); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(left)
	return left, nil
}

// manifestNamespaces returns the namespaces in which the manifest has objects.
func (t *manifestTestRun) manifestNamespaces() map[string]bool {
	out := map[string]bool{}
	for i := range t.objects {
		if namespace := t.namespaceOf(i); namespace != "" {
			out[namespace] = true
		}
	}
	return out
}

// isOfManifest reports whether an object is one of the manifest, or in one of its namespaces. Objects of
// Atoll's own API are Atoll's to remove.
func (t *manifestTestRun) isOfManifest(o storedObject, namespaces map[string]bool) bool {
	switch {
	case o.resource.Group == "atoll.dev", strings.HasSuffix(o.resource.Group, ".atoll.dev"):
		return false
	case o.kind == "PersistentVolume" && strings.HasPrefix(o.name, "pvc-"):
		return true
	}
	if o.namespace != "" {
		return namespaces[o.namespace]
	}
	return o.kind == "Namespace" && namespaces[o.name] || slices.ContainsFunc(t.objects, func(one *unstructured.Unstructured) bool {
		return o.kind == one.GetKind() && o.name == one.GetName()
	})
}
