package binder

import (
	"cmp"
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const policyKind = v1alpha1.SourcePropagationPolicy

// newPolicy is a policy of namespace shop that places all Deployments there, or the one of
// that name.
func newPolicy(name, deployment string) *v1alpha1.PropagationPolicy {
	return &v1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "uid-x", CreationTimestamp: metav1.NewTime(time.Unix(0, 0))},
		Spec: v1alpha1.PropagationSpec{
			ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment}},
			Preemption:        v1alpha1.PreemptNever,
		},
	}
}

func newKey(kind, name string) atoll.ItemKey {
	return atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}
}

// failingRevisions cannot be read: contents are in the store.
type failingRevisions struct {
	fakeRevisions
	err error
}

func (x failingRevisions) GetContent(context.Context, string) (*atoll.Content, error) {
	return nil, x.err
}

// comparePolicies sorts policies by kind, namespace and name.
func comparePolicies(a, b PolicyKey) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
