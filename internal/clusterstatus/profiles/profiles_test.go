package profiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

var hub = Hub{Address: "hub.example:6443", CA: []byte("PEM")}

func newCluster() *v1alpha1.Cluster {
	since := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 678, time.UTC))
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "tokyo", UID: "u", Labels: map[string]string{"env": "prod"}},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Region: "ap"},
		Status: v1alpha1.ClusterStatus{
			KubernetesVersion: "v1.36.3", Properties: []v1alpha1.ClusterProperty{{Name: "gpus", Value: "8"}, {Name: "none"}},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected", LastTransitionTime: since},
				{Type: v1alpha1.ClusterReady, Status: metav1.ConditionUnknown, Reason: "StreamLost", Message: "long", LastTransitionTime: since},
			},
		},
	}
}

func TestWhatIsPublished(t *testing.T) {
	p := ProfileOf(newCluster(), hub)
	if p.Name != "tokyo" || p.Namespace != Namespace || p.Spec.DisplayName != "tokyo" || p.Spec.ClusterManager.Name != "atoll" ||
		p.Labels["x-k8s.io/cluster-manager"] != "atoll" || p.Labels["env"] != "prod" {
		t.Errorf("%+v, %+v", p.ObjectMeta, p.Spec)
	}
	if got, want := fmt.Sprint(p.Status.Version.Kubernetes, p.Status.Properties), "v1.36.3[{gpus 8 <nil>} {topology.kubernetes.io/region ap <nil>}]"; got != want {
		t.Errorf("version and properties are %s, want %s", got, want)
	}
	if !meta.IsStatusConditionTrue(p.Status.Conditions, "Joined") || !meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, "ControlPlaneHealthy", metav1.ConditionUnknown) {
		t.Errorf("conditions are %+v", p.Status.Conditions)
	}
	if got, want := fmt.Sprintf("%s %s %s", p.Status.AccessProviders[0].Name, p.Status.AccessProviders[0].Cluster.Server, p.Status.AccessProviders[0].Cluster.CertificateAuthorityData),
		"atoll https://hub.example:6443/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy PEM"; got != want {
		t.Errorf("the way there is %s, want %s", got, want)
	}
	raw, err := json.Marshal(p)
	if !strings.Contains(string(raw), `"certificate-authority-data":"UEVN"`) {
		t.Errorf("kubeconfigs have another name for the CA: %s", raw)
	}
	if err != nil || len(raw) > 2048 {
		t.Errorf("a profile has %d bytes, %v", len(raw), err)
	}
	c := newCluster()
	c.Spec.Accepted = false
	if ProfileOf(c, hub) != nil {
		t.Error("a cluster that is not accepted is published")
	}
}

// tables of one cluster.
type tables struct {
	cluster *v1alpha1.Cluster
	publish bool
	look    []func(string)
}

func (m *tables) Get(name string) (*v1alpha1.Cluster, bool) {
	return m.cluster, m.cluster != nil && m.cluster.Name == name
}
func (m *tables) List() (out []*v1alpha1.Cluster) {
	if m.cluster != nil {
		out = append(out, m.cluster)
	}
	return out
}
func (m *tables) PublishesProfiles() bool   { return m.publish }
func (m *tables) Subscribe(fn func(string)) { m.look = append(m.look, fn) }
func (m *tables) notifyChanged() {
	for _, fn := range m.look {
		fn("tokyo")
	}
	synctest.Wait()
}

func TestProfilesFollowTheirClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		foreign := &multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: "oslo", Namespace: Namespace}, Spec: multicluster.ClusterProfileSpec{ClusterManager: multicluster.ClusterManager{Name: "other"}}}
		stale := &multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: Namespace, Labels: map[string]string{multicluster.LabelClusterManager: Manager}}}
		c := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(foreign).WithObjects(foreign, stale).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				writes++
				return w.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				writes++
				return w.Update(ctx, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				writes++
				return w.SubResource(sub).Update(ctx, o, opts...)
			},
		}).Build()
		m := &tables{cluster: newCluster(), publish: true}
		p := New(Config{Clusters: m, Settings: m, Client: c, Hub: hub})
		ctx, cancel := context.WithCancel(t.Context())
		run := func() { go p.Run(ctx); synctest.Wait() }
		run()
		there := func(name string) (*multicluster.ClusterProfile, bool) {
			var o multicluster.ClusterProfile
			err := c.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: name}, &o)
			return &o, err == nil
		}
		if o, ok := there("tokyo"); !ok || o.Status.Version.Kubernetes != "v1.36.3" || writes != 2 {
			t.Fatalf("published %t by %d writes: %+v", ok, writes, o)
		}
		if _, ok := there("gone"); ok {
			t.Error("the profile of a cluster that is gone is there")
		}
		if _, ok := there("oslo"); !ok {
			t.Error("another manager's profile is gone")
		}
		alive := newCluster()
		alive.Status.Resources.Requested = nil
		alive.Status.Nodes.Ready = 7
		m.cluster = alive
		m.notifyChanged()
		if writes != 2 {
			t.Errorf("%d writes of what is not published", writes-2)
		}
		newer := newCluster()
		newer.Status.KubernetesVersion = "v1.37.0"
		m.cluster = newer
		m.notifyChanged()
		if o, _ := there("tokyo"); o.Status.Version.Kubernetes != "v1.37.0" || writes != 3 {
			t.Errorf("after an upgrade: %+v by %d writes", o.Status.Version, writes)
		}
		cancel()
		synctest.Wait()

		// Another hub finds all as it is.
		p = New(Config{Clusters: m, Settings: m, Client: c, Hub: hub})
		ctx, cancel = context.WithCancel(t.Context())
		run()
		if writes != 3 {
			t.Errorf("%d writes by a hub that starts", writes-3)
		}
		m.publish = false
		m.notifyChanged()
		if _, ok := there("tokyo"); ok {
			t.Error("published although nothing is to be")
		}
		m.publish = true
		m.notifyChanged()
		if _, ok := there("tokyo"); !ok {
			t.Error("not published again")
		}
		denied := newCluster()
		denied.Spec.Accepted = false
		m.cluster = denied
		m.notifyChanged()
		if _, ok := there("tokyo"); ok {
			t.Error("a cluster that is not accepted any more is published")
		}
		cancel()
		synctest.Wait()
	})
}

// A store that does not answer yet delays nothing else of a hub.
func TestWhatIsPublishedIsReadUntilThatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		c := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&multicluster.ClusterProfile{}).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if reads++; reads == 1 {
					return errors.New("the store does not answer")
				}
				return w.List(ctx, l, opts...)
			},
		}).Build()
		m := &tables{cluster: newCluster(), publish: true}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(Config{Clusters: m, Settings: m, Client: c, Hub: hub}).Run(ctx) }()
		time.Sleep(2 * readAgain)
		synctest.Wait()
		var o multicluster.ClusterProfile
		if err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "tokyo"}, &o); err != nil || reads != 2 {
			t.Errorf("after %d reads: %v", reads, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}
