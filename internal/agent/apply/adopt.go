package apply

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
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
	collectDifferences(withoutServerFields(live), withoutServerFields(after), "", &out)
	slices.Sort(out)
	return out[:min(len(out), 3)], nil
}

// withoutServerFields is the object without what an apply changes in any case.
func withoutServerFields(obj *unstructured.Unstructured) map[string]any {
	c := obj.DeepCopy()
	labels := c.GetLabels()
	delete(labels, atoll.LabelBundleUID)
	delete(labels, ownership.LabelTemplateUID)
	delete(labels, ownership.LabelAdopted)
	if len(labels) == 0 {
		labels = nil
	}
	c.SetLabels(labels)
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	return c.Object
}

// collectDifferences lists the paths at which two values differ.
func collectDifferences(x, y any, path string, out *[]string) {
	xm, xok := x.(map[string]any)
	ym, yok := y.(map[string]any)
	if xok && yok {
		for k := range xm {
			collectDifferences(xm[k], ym[k], path+"."+k, out)
		}
		for k := range ym {
			if _, both := xm[k]; !both {
				collectDifferences(nil, ym[k], path+"."+k, out)
			}
		}
		return
	}
	xl, xok := x.([]any)
	yl, yok := y.([]any)
	if xok && yok && len(xl) == len(yl) {
		for i := range xl {
			collectDifferences(xl[i], yl[i], fmt.Sprintf("%s[%d]", path, i), out)
		}
		return
	}
	if !reflect.DeepEqual(x, y) {
		*out = append(*out, path[min(1, len(path)):])
	}
}
