package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab/process"
)

// killedApps is how many objects users write in each phase.
const killedApps = 40

// phaseWorld is a hub that is killed, with what users want of its members.
type phaseWorld struct {
	*ownLab
	ns      string
	hub     client.Client
	members map[string]client.Client

	mu     sync.Mutex
	values map[string]string // by name; empty: deleted
	round  int
}

// TestTheHubIsKilledInEveryPhase kills the hub by SIGKILL, as a system without memory does, at the moment at which it
// is known to be in a phase. Then it starts again, nothing is lost, and nothing that users deleted comes back.
func TestTheHubIsKilledInEveryPhase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills hubs")
	}
	w := &phaseWorld{ownLab: newOwnLab(t, 2), ns: "phases", members: map[string]client.Client{}, values: map[string]string{}}
	w.waitConnected("member1", "member2")
	for _, m := range []string{"member1", "member2"} {
		cfg, err := clientcmd.BuildConfigFromFlags("", w.KubeconfigPath(m))
		if err != nil {
			t.Fatal(err)
		}
		if w.members[m], err = client.New(cfg, client.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	w.hub = w.hubClient()
	if err := w.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []struct {
		name string
		act  func(context.Context) error
		// begun returns a check that the phase has begun since the call.
		begun func() func(ctx context.Context) error
	}{
		{"it binds", w.writeAll(), w.changeOf(func() client.ObjectList { return &enginev1.RevisionList{} })},
		{"it places", w.writeAll(), w.changeOf(func() client.ObjectList { return &enginev1.TargetSliceList{} })},
		{"it delivers", w.writeAll(), w.someMemberHas(true)},
		{"it removes", w.deleteHalf(), w.someMemberHas(false)},
		{"its CAs are rotated", w.rotateOnce, w.rotationBegins},
	} {
		w.killWhile(phase.name, phase.act, phase.begun())
	}
	if s := w.trustStatus("status"); s.Generation != 2 || s.RotatingSince == nil {
		t.Errorf("after a kill the rotation is %+v", s)
	}
	w.waitConnected("member1", "member2")
	w.killWhileItStarts()
	testwait.UntilNil(t, "after kills while it starts", w.firstDifference)
	w.killWhileItRestores()
}

// killWhile kills the hub when a phase has begun, while users act, and compares the members with what users want. Users
// repeat what the hub has not taken.
func (w *phaseWorld) killWhile(phase string, act, begun func(context.Context) error) {
	w.t.Helper()
	acted := make(chan error, 1)
	go func() { acted <- act(w.t.Context()) }()
	testwait.UntilNil(w.t, "begun: "+phase, begun)
	w.mustDo(w.KillComponent, "hub")
	w.mustDo(w.StartComponent, "hub")
	if err := <-acted; err != nil {
		w.t.Fatal(err)
	}
	testwait.UntilNil(w.t, "after a kill while "+phase, w.firstDifference)
}

// killWhileItStarts kills the hub at stages of its start, while changes wait for it.
func (w *phaseWorld) killWhileItStarts() {
	w.t.Helper()
	w.hub = w.hubClient() // with a certificate of the new CA
	config, err := clientcmd.BuildConfigFromFlags("", w.hubKubeconfig())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, stage := range []struct {
		name  string
		begun func(context.Context) error
	}{
		{"its process runs", func(context.Context) error { return nil }},
		{"its API answers", hubAnswers(config, "/livez")},
		{"it is ready", hubAnswers(config, "/readyz")},
	} {
		if err := w.writeAll()(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		w.killDuringStart(stage.name, stage.begun)
		w.mustDo(w.StartComponent, "hub")
	}
}

// killDuringStart starts the hub, and kills it at a stage of the start.
func (w *phaseWorld) killDuringStart(stage string, begun func(context.Context) error) {
	w.t.Helper()
	w.mustDo(w.KillComponent, "hub")
	started := make(chan error, 1)
	go func() { started <- w.StartComponent(w.t.Context(), "hub") }()
	testwait.UntilNil(w.t, stage, func(ctx context.Context) error {
		if err := w.hubRuns(); err != nil {
			return err
		}
		return begun(ctx)
	})
	w.mustDo(w.KillComponent, "hub")
	<-started // it may have become ready, or not
}

// killWhileItRestores restores an older backup, and kills the hub before and while it waits for a decision. It waits
// for one after its next start as well, and members keep what users wanted last.
func (w *phaseWorld) killWhileItRestores() {
	w.t.Helper()
	backup := hubSnapshot{t: w.t, data: w.data, dir: w.t.TempDir()}
	if _, err := runBinary(w.t.Context(), "atoll-hub", "backup", "--data-dir", w.data, "--file", backup.filePath()); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(w.writeAll()(w.t.Context()), w.deleteHalf()(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
	testwait.UntilNil(w.t, "the newest wishes are in the members", w.firstDifference)
	w.mustDo(w.KillComponent, "hub")
	if err := os.Rename(w.data, filepath.Join(backup.dir, "old")); err != nil {
		w.t.Fatal(err)
	}
	if _, err := runBinary(w.t.Context(), "atoll-hub", "restore", "--data-dir", w.data, "--file", backup.filePath()); err != nil {
		w.t.Fatal(err)
	}
	w.killDuringStart("the restored hub runs", func(context.Context) error { return nil })
	w.killDuringStart("the restored hub holds", w.hubHolds)
	w.mustDo(w.StartComponent, "hub")
	testwait.UntilNil(w.t, "the restored hub holds again", w.hubHolds)
	w.waitConnected("member1", "member2")
	if err := w.firstDifference(w.t.Context()); err != nil {
		w.t.Errorf("a restored hub that was killed changed a member: %v", err)
	}
}

// hubHolds returns an error unless the restored hub waits for a decision.
func (w *phaseWorld) hubHolds(context.Context) error {
	out, err := w.runCLI("restore", "status", "-o", "json")
	var s restoreStatus
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err == nil && !s.Holding {
		err = errors.New("the hub does not hold: " + out)
	}
	return err
}

// hubRuns returns an error while the process of the hub does not run.
func (w *phaseWorld) hubRuns() error {
	status, err := w.ReadStatus(w.t.Context())
	if err != nil {
		return err
	}
	for _, c := range status.Components {
		if c.Name == "hub" && c.State != process.Running {
			return fmt.Errorf("the hub is %s", c.State)
		}
	}
	return nil
}

// hubAnswers returns a check that the hub answers a path.
func hubAnswers(config *rest.Config, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
		if err != nil {
			return err
		}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode >= 500 {
			return errors.New(answer.Status)
		}
		return nil
	}
}

// writeAll returns an act of users that writes every object with a new value.
func (w *phaseWorld) writeAll() func(context.Context) error {
	return func(ctx context.Context) error {
		w.mu.Lock()
		w.round++
		value := fmt.Sprint(w.round)
		for i := range killedApps {
			w.values[fmt.Sprintf("app%d", i)] = value
		}
		w.mu.Unlock()
		for i := range killedApps {
			name := fmt.Sprintf("app%d", i)
			if err := repeatUntilTaken(ctx, func() error { return w.writeOne(ctx, name, value) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeOne waits until a deleted object of that name is gone, as a user does.
func (w *phaseWorld) writeOne(ctx context.Context, name, value string) error {
	old, err := getIfExists(ctx, w.hub, configMap(w.ns, name))
	if err != nil {
		return err
	}
	if old != nil && old.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is still being deleted", name)
	}
	o := configMap(w.ns, name)
	o.SetAnnotations(map[string]string{"atoll.dev/clusters": "*"})
	o.Object["data"] = map[string]any{"value": value}
	return w.hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership)
}

// deleteHalf returns an act of users that deletes every other object.
func (w *phaseWorld) deleteHalf() func(context.Context) error {
	return func(ctx context.Context) error {
		w.mu.Lock()
		for i := 0; i < killedApps; i += 2 {
			w.values[fmt.Sprintf("app%d", i)] = ""
		}
		w.mu.Unlock()
		for i := 0; i < killedApps; i += 2 {
			o := configMap(w.ns, fmt.Sprintf("app%d", i))
			if err := repeatUntilTaken(ctx, func() error { return client.IgnoreNotFound(w.hub.Delete(ctx, o)) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// rotateOnce begins to rotate the CAs, once: the hub may be killed before it answers.
func (w *phaseWorld) rotateOnce(ctx context.Context) error {
	return repeatUntilTaken(ctx, func() error {
		out, err := w.runCLI("ca", "status", "-o", "json")
		if err != nil || strings.Contains(out, `"generation": 2`) || strings.Contains(out, `"generation":2`) {
			return err
		}
		_, err = w.runCLI("ca", "rotate", "-o", "json")
		return err
	})
}

// rotationBegins returns a check that the hub has CAs of another generation.
func (w *phaseWorld) rotationBegins() func(context.Context) error {
	return func(context.Context) error {
		out, err := w.runCLI("ca", "status", "-o", "json")
		if err == nil && !strings.Contains(out, `"generation": 2`) && !strings.Contains(out, `"generation":2`) {
			err = errors.New(out)
		}
		return err
	}
}

// repeatUntilTaken repeats what the hub may not take because it is killed.
func repeatUntilTaken(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the hub does not take it: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// changeOf returns a check that some object of a kind is new or changed since the call.
func (w *phaseWorld) changeOf(list func() client.ObjectList) func() func(context.Context) error {
	return func() func(context.Context) error {
		before, err := w.versionsOf(w.t.Context(), list())
		if err != nil {
			w.t.Fatal(err)
		}
		return func(ctx context.Context) error {
			now, err := w.versionsOf(ctx, list())
			if err == nil && now == before {
				err = fmt.Errorf("no %T has changed", list())
			}
			return err
		}
	}
}

// versionsOf returns the versions of all objects of a list.
func (w *phaseWorld) versionsOf(ctx context.Context, list client.ObjectList) (string, error) {
	if err := w.hub.List(ctx, list); err != nil {
		return "", err
	}
	var all []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			all = append(all, m.GetName()+" "+m.GetResourceVersion())
		}
		return err
	})
	slices.Sort(all)
	return strings.Join(all, ","), err
}

// someMemberHas returns a check that member1 has the newest value of an object, or, with false, lacks a deleted one.
func (w *phaseWorld) someMemberHas(present bool) func() func(context.Context) error {
	return func() func(context.Context) error {
		w.mu.Lock()
		round := w.round
		w.mu.Unlock()
		return func(ctx context.Context) error {
			have, err := w.heldBy(ctx, "member1")
			if err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for name, value := range w.values {
				held, there := have[name]
				if present && w.round > round && there && held == value || !present && value == "" && !there {
					return nil
				}
			}
			return fmt.Errorf("member1 has %d objects", len(have))
		}
	}
}

// heldBy returns the values of the objects in a member, by name.
func (w *phaseWorld) heldBy(ctx context.Context, member string) (map[string]string, error) {
	var list unstructured.UnstructuredList
	list.SetAPIVersion("v1")
	list.SetKind("ConfigMapList")
	if err := w.members[member].List(ctx, &list, client.InNamespace(w.ns)); err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	have := map[string]string{}
	for _, o := range list.Items {
		have[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "value")
	}
	return have, nil
}

// firstDifference returns an error with the first difference between what users want and what members have.
func (w *phaseWorld) firstDifference(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for member := range w.members {
		have, err := w.heldBy(ctx, member)
		if err != nil {
			return err
		}
		for name, value := range w.values {
			if have[name] != value {
				return fmt.Errorf("%s has %s at %q, want %q", member, name, have[name], value)
			}
		}
	}
	return nil
}

// TestANewLeaderIsKilledAtOnce kills the hub that leads, and then the one that takes over, as soon as it leads. Both
// start again, and follow users' last wishes.
func TestANewLeaderIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills hubs")
	}
	h := twoHubs(t)
	const ns = "handover"
	h.a.apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	h.a.apply(t, ns, annotatedConfigMap("kept", "*", "1")+"---"+annotatedConfigMap("goes", "*", "1"))
	want := map[string]string{"kept": "1", "goes": "1"}
	everywhere := func() map[string]map[string]string {
		return map[string]map[string]string{"member1": want, "member2": want}
	}
	testwait.UntilNil(t, "both objects are in both members", h.membersHold(ns, everywhere()))
	h.a.apply(t, ns, annotatedConfigMap("kept", "*", "2")+"---"+annotatedConfigMap("new", "*", "1"))
	if err := h.a.client.Delete(t.Context(), configMap(ns, "goes")); err != nil {
		t.Fatal(err)
	}
	h.a.sendSignal(t, syscall.SIGKILL)
	h.b.waitForLog(t, "this hub leads")
	h.b.sendSignal(t, syscall.SIGKILL)
	h.a.waitExit(t)
	h.b.waitExit(t)
	h.a = h.startHub(t, "a", h.doors[0])
	h.b = h.startHub(t, "b", h.doors[1])
	h.a.awaitReady(t)
	h.b.awaitReady(t)
	want = map[string]string{"kept": "2", "new": "1", "goes": ""}
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "members are as users want them", h.membersHold(ns, everywhere()))
}
