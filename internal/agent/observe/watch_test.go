package observe

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
)

// A member that serves a newer version, and still the older one, has its objects judged in the newer version once one is
// applied in it. An object that is still applied in the older version does not take the watch back.
func TestAWatchFollowsTheNewestAppliedVersion(t *testing.T) {
	client, err := member.New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	resource := func(version string) member.Resource {
		return member.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: "autoscaling", Version: version, Resource: "horizontalpodautoscalers"},
			Kind:                 "HorizontalPodAutoscaler", Namespaced: true, Listable: true,
		}
	}
	client.AddKnownResources(resource("v1"), resource("v2"))
	w := NewWatcher(client)
	for _, step := range []struct{ start, want string }{{"v1", "v1"}, {"v2", "v2"}, {"v1", "v2"}, {"v2beta2", "v2"}} {
		w.Start(resource(step.start))
		w.StartUnfiltered(resource(step.start))
		for _, key := range watchKeysOfKind("autoscaling", "HorizontalPodAutoscaler") {
			if got := w.watches[key].resource.Version; got != step.want {
				t.Errorf("after %s: the watch is of %s, want %s", step.start, got, step.want)
			}
		}
	}
}
