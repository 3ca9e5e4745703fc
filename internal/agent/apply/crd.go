package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/agent/member"
)

// established waits a short while until the CRD is served, so that its objects
// can follow in the same pass.
func (e *Engine) established(ctx context.Context, p plan, res member.Resource) *Failure {
	for try := range 25 {
		crd, err := e.o.Client.Get(ctx, res, "", p.Key.Name)
		switch {
		case apierrors.IsNotFound(err):
			e.again(p.Key)
			return nil
		case err != nil:
			return explain(err, p.Key)
		case isEstablished(crd):
			v := e.observed(crd)
			e.mu.Lock()
			e.took(v)
			e.mu.Unlock()
			e.o.Client.Learn(served(crd)...)
			e.Served()
			return nil
		}
		timer := time.NewTimer(time.Duration(20+20*try) * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return &Failure{
		Reason: ReasonNotEstablished, Waits: true, Most: 30 * time.Second,
		Message: "the member has not established the definition yet; its conditions say why",
	}
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" {
			return m["status"] == "True"
		}
	}
	return false
}
