package corpus

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/lab/corpus/compare"
)

// settleLimit bounds the wait for the controllers of the control. Some objects never get ready.
const settleLimit = 20 * time.Second

// maxReads bounds concurrent reads of a cluster.
const maxReads = 8

// observations is what the clusters hold of the manifest, by cluster and in the order of the objects.
type observations map[string][]observation

// compareLiveObjects compares objects, statuses and answers while the manifest is applied. It waits for the
// control to settle, and then for the fleet to be the same in two looks in a row.
func (t *manifestTestRun) compareLiveObjects(ctx context.Context) error {
	settleBy := time.Now().Add(settleLimit)
	lastControl := ""
	look := func(ctx context.Context) ([]compare.Difference, bool, error) {
		seen, err := t.readManifestObjects(ctx)
		if err != nil {
			return nil, false, err
		}
		now := compare.ComparableStatusText(controlObjects(seen))
		settled := now == lastControl && (time.Now().After(settleBy) || t.isControlSettled(seen))
		lastControl = now
		return t.diffObserved(seen), settled, nil
	}
	found, err := t.awaitExpectedDifferences(ctx, isLiveEntry, look)
	t.addDifferences(found...)
	if err != nil {
		return err
	}
	if len(t.objects) == 0 {
		return nil
	}
	hub, control, err := t.runKubectlOnBoth(context.WithoutCancel(ctx), answerGet, "-f", streamFile, "-o", "name")
	if err != nil {
		return err
	}
	t.addDifferences(compare.DiffCommandAnswers(compare.Answers, answerGet+" -o name", t.hideGeneratedNames(control), t.hideGeneratedNames(hub))...)
	return nil
}

// readManifestObjects reads the objects of the manifest in all clusters at once.
func (t *manifestTestRun) readManifestObjects(ctx context.Context) (observations, error) {
	out := observations{}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range t.allClusters() {
		seen := make([]observation, len(t.objects))
		out[c.name] = seen
		group.Go(func() error {
			reads, ctx := errgroup.WithContext(ctx)
			reads.SetLimit(maxReads)
			for i := range t.objects {
				reads.Go(func() (err error) {
					seen[i], err = c.readObject(ctx, idOf(t.objectInCluster(c, i)))
					return err
				})
			}
			return reads.Wait()
		})
	}
	return out, group.Wait()
}

func controlObjects(seen observations) (out []*unstructured.Unstructured) {
	for _, o := range seen[controlName] {
		out = append(out, o.object)
	}
	return out
}

// isControlSettled reports whether the control's controllers have done their work.
func (t *manifestTestRun) isControlSettled(seen observations) bool {
	uids := map[string]bool{}
	for _, o := range seen[controlName] {
		if o.object != nil {
			uids[string(o.object.GetUID())] = true
		}
	}
	for i, o := range seen[controlName] {
		if o.object == nil {
			continue
		}
		if compare.UnsettledReason(o.object) != "" {
			return false
		}
		for _, owner := range t.objects[i].GetOwnerReferences() {
			if !uids[string(owner.UID)] {
				return false // the garbage collector removes it
			}
		}
	}
	return true
}

// diffObserved returns all differences of the objects.
func (t *manifestTestRun) diffObserved(seen observations) (out []compare.Difference) {
	for i := range t.objects {
		name := t.displayName(i)
		control, hub := seen[controlName][i], seen[hubName][i]
		onHub, both := compare.DiffPresence(compare.Answers, hubName, name, control.object, hub.object)
		out = append(out, onHub...)
		if both {
			out = append(out, compare.DiffStatuses(name, t.hideGeneratedName(t.control, i, control.object), t.hideGeneratedName(t.hub, i, hub.object), len(t.members))...)
			out = append(out, compare.DiffRows(name, t.hideGeneratedCells(t.control, i, control.row), t.hideGeneratedCells(t.hub, i, hub.row))...)
		}
		for _, m := range t.members {
			live := seen[m.name][i]
			inMember, both := compare.DiffPresence(compare.Objects, m.name, name, control.object, live.object)
			out = append(out, inMember...)
			if both {
				out = append(out, compare.DiffContent(m.name, name, t.contentOf(t.control, i, control), t.contentOf(m, i, live))...)
			}
		}
	}
	return out
}

// displayName is the name of an object in differences.
func (t *manifestTestRun) displayName(i int) string {
	o := t.objects[i]
	name := o.GetName()
	if hasGeneratedName(o) {
		name = namePlaceholder(o)
	}
	return compare.ObjectName(o.GetKind(), t.namespaceOf(i), name)
}

// namespaceOf returns the namespace of an object, also where the manifest leaves it out; empty for an
// object of the cluster.
func (t *manifestTestRun) namespaceOf(i int) string {
	o := t.objects[i]
	mapping, err := t.control.findMapping(o.GroupVersionKind())
	if err != nil || mapping == nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return o.GetNamespace()
	}
	return namespaceOrDefault(o.GetNamespace())
}

// contentOf is the comparable content of an object.
func (t *manifestTestRun) contentOf(c *cluster, i int, o observation) map[string]any {
	return compare.RemoveAssignedFields(t.hideGeneratedName(c, i, o.object), t.objects[i])
}

// hideGeneratedName replaces the generated name of an object by its placeholder.
func (t *manifestTestRun) hideGeneratedName(c *cluster, i int, o *unstructured.Unstructured) *unstructured.Unstructured {
	name := t.generatedName(c, i)
	if name == "" {
		return o
	}
	content, _ := compare.ReplaceName(o.Object, name, namePlaceholder(t.objects[i])).(map[string]any)
	return &unstructured.Unstructured{Object: content}
}

func (t *manifestTestRun) generatedName(c *cluster, i int) string {
	if names := t.names[c.name]; names != nil {
		return names[i]
	}
	return ""
}

// hideGeneratedCells replaces a generated name in the columns of kubectl.
func (t *manifestTestRun) hideGeneratedCells(c *cluster, i int, row map[string]string) map[string]string {
	name := t.generatedName(c, i)
	if name == "" {
		return row
	}
	out := map[string]string{}
	for column, cell := range row {
		out[column] = strings.ReplaceAll(cell, name, namePlaceholder(t.objects[i]))
	}
	return out
}
