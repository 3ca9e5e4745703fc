package sigdecisions

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

func newDecision(ns, uid string, clusters ...string) state.Decision {
	d := state.Decision{Meta: metav1.ObjectMeta{Namespace: ns, Name: "edge-decision-1", UID: types.UID(uid), Labels: map[string]string{v1alpha1.LabelPlacement: "edge", v1alpha1.LabelDecision: "1"}}}
	for _, c := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, v1alpha1.ClusterDecision{ClusterName: c, ClusterUID: "u-" + c})
	}
	return d
}

func TestWhatIsPublished(t *testing.T) {
	d := newDecision("shop", "u", "oslo", "tokyo")
	d.Status.Decisions[1].Reason = "it does not fit any more"
	p := decisionOf(d)
	if p.Namespace != "shop" || p.Name != "edge-decision-1" || p.SchedulerName != "atoll" || p.Labels["multicluster.x-k8s.io/decision-key"] != "edge" {
		t.Errorf("%+v", p)
	}
	if o := p.OwnerReferences[0]; o.UID != "u" || o.Kind != "PlacementDecision" || o.APIVersion != "atoll.dev/v1alpha1" || !*o.Controller {
		t.Errorf("owner %+v", o)
	}
	if got, want := fmt.Sprint(p.Decisions), "[{{oslo atoll-inventory} } {{tokyo atoll-inventory} it does not fit any more}]"; got != want {
		t.Errorf("decisions, each with clusterProfileRef name and namespace and reason: %s, want %s", got, want)
	}
	if p := decisionOf(newDecision("", "u", "oslo")); p.Namespace != "atoll-inventory" || p.OwnerReferences[0].Kind != "ClusterPlacementDecision" {
		t.Errorf("of a ClusterPlacement: %+v", p)
	}
}

// tables of one Placement.
type tables struct {
	decisions []state.Decision
	publish   bool
	changed   func(types.NamespacedName)
	switched  func(string)
}

var edge = types.NamespacedName{Namespace: "shop", Name: "edge"}

func (x *tables) List() []state.Placement {
	return []state.Placement{{Meta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name}}}
}
func (x *tables) OfPlacement(types.NamespacedName) []state.Decision { return x.decisions }
func (x *tables) Subscribe(fn func(types.NamespacedName))           { x.changed = fn }

type settings struct{ *tables }

func (x settings) PublishesProfiles() bool   { return x.publish }
func (x settings) Subscribe(fn func(string)) { x.switched = fn }

func TestDecisionsArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				writes++
				return w.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				writes++
				return w.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				writes++
				return w.Delete(ctx, o, opts...)
			},
		}).Build()
		x := &tables{publish: true, decisions: []state.Decision{newDecision("shop", "u", "oslo")}}
		ctx, cancel := context.WithCancel(t.Context())
		run := func() {
			p := New(Config{Placements: x, Decisions: x, Settings: settings{x}, Client: c, Log: slog.New(slog.DiscardHandler)})
			go p.Run(ctx)
			synctest.Wait()
		}
		is := func(when string, wantWrites int, want ...string) {
			t.Helper()
			synctest.Wait()
			var o multicluster.PlacementDecision
			var got []string
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "edge-decision-1"}, &o); err == nil {
				for _, d := range o.Decisions {
					got = append(got, d.ClusterProfileRef.Name)
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") || writes != wantWrites {
				t.Errorf("%s: %v after %d writes, want %v after %d", when, got, writes, want, wantWrites)
			}
		}
		run()
		is("at first", 1, "oslo")
		x.changed(edge)
		is("nothing changed", 1, "oslo")
		x.decisions = []state.Decision{newDecision("shop", "u", "oslo", "tokyo")}
		x.changed(edge)
		is("a cluster more", 2, "oslo", "tokyo")
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		run()
		is("after a restart", 2, "oslo", "tokyo")
		x.publish = false
		x.switched("hub")
		is("turned off", 3)
		x.changed(edge)
		is("still off", 3)
		x.publish = true
		x.switched("hub")
		is("turned on", 4, "oslo", "tokyo")
		x.decisions = nil
		x.changed(edge)
		is("its owner is gone: the garbage collector deletes it", 4, "oslo", "tokyo")
		x.decisions = []state.Decision{newDecision("shop", "another", "lima")}
		x.changed(edge)
		is("an object of another owner stays", 4, "oslo", "tokyo")
		x.publish = false
		x.switched("hub")
		is("also when turned off", 4, "oslo", "tokyo")
		cancel()
		synctest.Wait()
	})
}
