package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// A foreign object is not watched; it is looked at again now and then.
const (
	conflictFirst = 5 * time.Second
	conflictMost  = 45 * time.Second
)

// listFirstDifferingPaths returns at most three paths at which applying the item would change the live
// object. It returns no values.
func (e *MemberApplier) listFirstDifferingPaths(ctx context.Context, p pendingWork, res member.Resource, live *unstructured.Unstructured) ([]string, *Failure) {
	differences, failure := e.compareWithLive(ctx, p, res, live, p.Item.MemberOwned)
	var out []string
	for _, d := range differences {
		out = append(out, d.Path)
	}
	slices.Sort(out)
	return out[:min(len(out), 3)], failure
}

// compareWithLive returns what applying the item without the fields in left would change of the live
// object. The apply is one that the member's API does not carry out.
func (e *MemberApplier) compareWithLive(ctx context.Context, p pendingWork, res member.Resource, live *unstructured.Unstructured, left []string) ([]objectdiff.Difference, *Failure) {
	body, failure := applyBody(p, applyParams{uid: string(live.GetUID()), left: left})
	if failure == nil && p.Record.UID == string(live.GetUID()) {
		body, failure = withNewlyLeftFields(body, p, live, left)
	}
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
	return objectdiff.Compare(objectdiff.WithoutServerFields(live), objectdiff.WithoutServerFields(after)), nil
}

// withNewlyLeftFields adds the live values of fields to the body of an apply that are Atoll's and will be left
// to the member: without them the apply would remove the fields.
func withNewlyLeftFields(body []byte, p pendingWork, live *unstructured.Unstructured, left []string) ([]byte, *Failure) {
	newly := slices.DeleteFunc(slices.Clone(left), func(path string) bool { return slices.Contains(p.Record.Left, path) })
	if len(newly) == 0 {
		return body, nil
	}
	var sent map[string]any
	if err := json.Unmarshal(body, &sent); err != nil {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	if _, failure := copyMemberFields(sent, p.Item, live, newly); failure != nil {
		return nil, failure
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	return body, nil
}
