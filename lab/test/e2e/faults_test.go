package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// The seed and the number of user actions of a random run.
const (
	seedVariable    = "ATOLL_SEED"
	actionsVariable = "ATOLL_ACTIONS"
)

// wantedObject is what users want of one object: where it is to be, and in which version.
// A nil wish is an object that users deleted, or never made.
type wantedObject struct {
	clusters []string
	value    string
}

// randomUser acts on the hub at random and remembers what is wanted.
type randomUser struct {
	t      *testing.T
	rng    *rand.Rand
	ns     string
	wishes map[string]*wantedObject
	serial int
}

func intFromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, v)
	}
	return n
}

// TestNothingIsLostAndNothingComesBack kills and cuts at random while users act at
// random, and then compares every member with what users want. The seed is the same
// each time, so that what fails fails again: its first minute has every kind of fault,
// and then a link that is half open for 45 s. `make soak` tries other seeds.
func TestNothingIsLostAndNothingComesBack(t *testing.T) {
	faultRun(t, uint64(intFromEnv(t, seedVariable, 8)))
}

func faultRun(t *testing.T, seed uint64) {
	t.Helper()
	actions := intFromEnv(t, actionsVariable, 200)
	t.Logf("replay with %s=%d %s=%d", seedVariable, seed, actionsVariable, actions)
	u := &randomUser{t: t, rng: rand.New(rand.NewPCG(seed, 1)), ns: createNamespace(t, fmt.Sprintf("faults-%d", seed)), wishes: map[string]*wantedObject{}}

	ctx, cancel := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() { breakThings(ctx, t, rand.New(rand.NewPCG(seed, 2))) })
	// Also where an action fails: what is broken then is not left to the tests that follow.
	end := sync.OnceFunc(func() {
		cancel()
		faults.Wait()
		healAll(t)
	})
	t.Cleanup(end)
	for range actions {
		u.actOnce()
	}
	end()
	testwait.UntilNil(t, "every member is as users want it", u.firstDifference)
}

// actOnce does one user action, again and again until the hub has taken it.
func (u *randomUser) actOnce() {
	name := fmt.Sprintf("o%d", u.rng.IntN(12))
	w := u.wishes[name]
	switch n := u.rng.IntN(10); {
	case w == nil || n < 4:
		u.serial++
		next := &wantedObject{clusters: u.someClusters(), value: strconv.Itoa(u.serial)}
		u.retryUntilDone("apply "+name, func(ctx context.Context) error { return u.apply(ctx, name, next) })
		u.wishes[name] = next
	case n < 7:
		next := &wantedObject{clusters: u.someClusters(), value: w.value}
		u.retryUntilDone("move "+name, func(ctx context.Context) error { return u.apply(ctx, name, next) })
		u.wishes[name] = next
	default:
		u.retryUntilDone("delete "+name, func(ctx context.Context) error {
			return client.IgnoreNotFound(hubClient().Delete(ctx, u.buildObject(name, w)))
		})
		u.wishes[name] = nil
	}
}

func (u *randomUser) someClusters() []string {
	var out []string
	for _, m := range memberNames {
		if u.rng.IntN(2) == 0 {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		out = append(out, memberNames[u.rng.IntN(len(memberNames))])
	}
	return out
}

func (u *randomUser) buildObject(name string, w *wantedObject) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": name, "namespace": u.ns,
			"annotations": map[string]any{"atoll.dev/clusters": strings.Join(w.clusters, ",")},
		},
		"data": map[string]any{"value": w.value},
	}}
}

// apply waits until a deleted object of that name is gone, like a user whose new object
// vanishes with the old one.
func (u *randomUser) apply(ctx context.Context, name string, w *wantedObject) error {
	old, err := get(ctx, "hub", "v1", "ConfigMap", u.ns, name)
	if err != nil {
		return err
	}
	if old != nil && old.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is still being deleted", name)
	}
	return hubClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(u.buildObject(name, w)), client.FieldOwner("kubectl"), client.ForceOwnership)
}

func (u *randomUser) retryUntilDone(what string, do func(ctx context.Context) error) {
	u.t.Helper()
	testwait.UntilNilWithin(u.t, 3*testwait.HangLimit, what, func(ctx context.Context) error {
		err := do(ctx)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			u.t.Fatalf("%s: %v", what, err)
		}
		return err
	})
}

// firstDifference returns an error with the first difference between what users want and what members have.
func (u *randomUser) firstDifference(ctx context.Context) error {
	for _, m := range memberNames {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("v1")
		list.SetKind("ConfigMapList")
		if err := sharedWorld.clients[m].List(ctx, &list, client.InNamespace(u.ns)); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		have := map[string]string{}
		for _, o := range list.Items {
			if o.GetName() != "kube-root-ca.crt" {
				have[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "value")
			}
		}
		for name, w := range u.wishes {
			wanted := w != nil && strings.Contains(strings.Join(w.clusters, ","), m)
			value, there := have[name]
			switch {
			case wanted && !there:
				return fmt.Errorf("%s lost %s", m, name)
			case wanted && value != w.value:
				return fmt.Errorf("%s has %s at %s, want %s", m, name, value, w.value)
			case !wanted && there:
				return fmt.Errorf("%s still has %s", m, name)
			}
		}
	}
	return nil
}

// breakThings breaks one thing after the other and mends it a moment later, until
// ctx ends. Links stay broken for longer than the timeouts now and then.
func breakThings(ctx context.Context, t *testing.T, rng *rand.Rand) {
	always := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		m := memberNames[rng.IntN(len(memberNames))]
		down := time.Duration(200+rng.IntN(4000)) * time.Millisecond
		var hurt, heal func(context.Context) error
		switch rng.IntN(6) {
		case 0:
			hurt = func(c context.Context) error { return sharedWorld.lab.KillComponent(c, "hub") }
			heal = func(c context.Context) error { return sharedWorld.lab.StartComponent(c, "hub") }
		case 1, 2:
			hurt = func(c context.Context) error { return sharedWorld.lab.KillComponent(c, "agent/"+m) }
			heal = func(c context.Context) error { return sharedWorld.lab.StartComponent(c, "agent/"+m) }
		case 3:
			hurt = func(c context.Context) error { return sharedWorld.lab.KillComponent(c, m) }
			heal = func(c context.Context) error { return sharedWorld.lab.StartComponent(c, m) }
		case 4:
			hurt = func(c context.Context) error { return sharedWorld.lab.CutLink(c, m) }
			heal = func(c context.Context) error { return sharedWorld.lab.HealLink(c, m) }
		default:
			down = 45 * time.Second / time.Duration(1+rng.IntN(20))
			hurt = func(c context.Context) error { return sharedWorld.lab.DiscardLinkTraffic(c, m) }
			heal = func(c context.Context) error { return sharedWorld.lab.HealLink(c, m) }
		}
		if err := hurt(always); err != nil {
			t.Errorf("break: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(down):
		}
		if err := heal(always); err != nil {
			t.Errorf("mend: %v", err)
		}
	}
}

// healAll brings everything back.
func healAll(t *testing.T) {
	t.Helper()
	always := context.WithoutCancel(t.Context())
	for _, m := range memberNames {
		if err := sharedWorld.lab.HealLink(always, m); err != nil {
			t.Errorf("heal %s: %v", m, err)
		}
	}
	for _, c := range []string{"hub", "member1", "member2", "member3", "agent/member1", "agent/member2", "agent/member3"} {
		if err := sharedWorld.lab.StartComponent(always, c); err != nil {
			t.Errorf("start %s: %v", c, err)
		}
	}
}
