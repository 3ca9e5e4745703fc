package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// A foreign object is not watched; it is looked at again now and then.
const (
	conflictFirst = 5 * time.Second
	conflictMost  = 45 * time.Second
)

// listDifferences returns at most three paths at which applying the item would change the live
// object. It returns no values.
func (e *Engine) listDifferences(ctx context.Context, p plan, res member.Resource, live *unstructured.Unstructured) ([]string, *Failure) {
	body, failure := applyBody(p, sending{uid: string(live.GetUID()), left: p.Item.MemberOwned})
	if failure != nil {
		return nil, failure
	}
	after, err := e.o.Client.Apply(ctx, member.Patch{
		Resource: res, Namespace: p.Key.Namespace, Name: p.Key.Name,
		Manager: atoll.FieldManager, Force: true, DryRun: true, Body: body,
	})
	if err != nil {
		return nil, failureFromError(err, p.Key)
	}
	var out []string
	for _, d := range objectdiff.Compare(objectdiff.WithoutServerFields(live), objectdiff.WithoutServerFields(after)) {
		out = append(out, d.Path)
	}
	slices.Sort(out)
	return out[:min(len(out), 3)], nil
}
