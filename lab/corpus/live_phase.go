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

// observed is what the clusters hold of the manifest, by cluster and in the order of the objects.
type observed map[string][]observation

// compareLive compares objects, statuses and answers while the manifest is applied. It waits for the
// control to settle, and then for the fleet to be the same in two looks in a row.
func (t *turn) compareLive(ctx context.Context) error {
	settleBy := time.Now().Add(settleLimit)
	lastControl := ""
	look := func(ctx context.Context) ([]compare.Difference, bool, error) {
		seen, err := t.readAll(ctx)
		if err != nil {
			return nil, false, err
		}
		now := compare.SettledText(controlObjects(seen))
		settled := now == lastControl && (time.Now().After(settleBy) || t.isSettled(seen))
		lastControl = now
		return t.diffObserved(seen), settled, nil
	}
	found, err := t.awaitExpected(ctx, isLiveEntry, look)
	t.add(found...)
	if err != nil {
		return err
	}
	if len(t.objects) == 0 {
		return nil
	}
	hub, control, err := t.askBoth(context.WithoutCancel(ctx), answerGet, "-f", streamFile, "-o", "name")
	if err != nil {
		return err
	}
	t.add(compare.Commands(compare.Answers, answerGet+" -o name", t.hideNames(control), t.hideNames(hub))...)
	return nil
}

// readAll reads the objects of the manifest in all clusters at once.
func (t *turn) readAll(ctx context.Context) (observed, error) {
	out := observed{}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range t.allClusters() {
		seen := make([]observation, len(t.objects))
		out[c.name] = seen
		group.Go(func() error {
			reads, ctx := errgroup.WithContext(ctx)
			reads.SetLimit(maxReads)
			for i := range t.objects {
				reads.Go(func() (err error) {
					seen[i], err = c.read(ctx, idOf(t.objectIn(c, i)))
					return err
				})
			}
			return reads.Wait()
		})
	}
	return out, group.Wait()
}

func controlObjects(seen observed) (out []*unstructured.Unstructured) {
	for _, o := range seen[controlName] {
		out = append(out, o.object)
	}
	return out
}

// isSettled reports whether the control's controllers have done their work.
func (t *turn) isSettled(seen observed) bool {
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
		if compare.Unsettled(o.object) != "" {
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
func (t *turn) diffObserved(seen observed) (out []compare.Difference) {
	for i := range t.objects {
		name := t.displayName(i)
		control, hub := seen[controlName][i], seen[hubName][i]
		onHub, both := compare.Presence(compare.Answers, hubName, name, control.object, hub.object)
		out = append(out, onHub...)
		if both {
			out = append(out, compare.Statuses(name, t.hideName(t.control, i, control.object), t.hideName(t.hub, i, hub.object), len(t.members))...)
			out = append(out, compare.Rows(name, t.hideCells(t.control, i, control.row), t.hideCells(t.hub, i, hub.row))...)
		}
		for _, m := range t.members {
			live := seen[m.name][i]
			inMember, both := compare.Presence(compare.Objects, m.name, name, control.object, live.object)
			out = append(out, inMember...)
			if both {
				out = append(out, compare.Content(m.name, name, t.contentOf(t.control, i, control), t.contentOf(m, i, live))...)
			}
		}
	}
	return out
}

// displayName is the name of an object in differences.
func (t *turn) displayName(i int) string {
	o := t.objects[i]
	name := o.GetName()
	if isGenerated(o) {
		name = placeholderOf(o)
	}
	return compare.ObjectName(o.GetKind(), t.namespaceOf(i), name)
}

// namespaceOf returns the namespace of an object, also where the manifest leaves it out; empty for an
// object of the cluster.
func (t *turn) namespaceOf(i int) string {
	o := t.objects[i]
	mapping, err := t.control.findMapping(o.GroupVersionKind())
	if err != nil || mapping == nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return o.GetNamespace()
	}
	return namespaceOr(o.GetNamespace())
}

// contentOf is the comparable content of an object.
func (t *turn) contentOf(c *cluster, i int, o observation) map[string]any {
	return compare.RemoveAssigned(t.hideName(c, i, o.object), t.objects[i])
}

// hideName replaces the generated name of an object by its placeholder.
func (t *turn) hideName(c *cluster, i int, o *unstructured.Unstructured) *unstructured.Unstructured {
	name := t.generatedName(c, i)
	if name == "" {
		return o
	}
	content, _ := compare.ReplaceName(o.Object, name, placeholderOf(t.objects[i])).(map[string]any)
	return &unstructured.Unstructured{Object: content}
}

func (t *turn) generatedName(c *cluster, i int) string {
	if names := t.names[c.name]; names != nil {
		return names[i]
	}
	return ""
}

// hideCells replaces a generated name in the columns of kubectl.
func (t *turn) hideCells(c *cluster, i int, row map[string]string) map[string]string {
	name := t.generatedName(c, i)
	if name == "" {
		return row
	}
	out := map[string]string{}
	for column, cell := range row {
		out[column] = strings.ReplaceAll(cell, name, placeholderOf(t.objects[i]))
	}
	return out
}
