package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(agenttest.RunTestsWithMember(m)) }

var (
	configMaps         = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

type fixture struct {
	t    *testing.T
	hub  *testHub
	kube dynamic.Interface
	logs *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newFixture returns a hub and a member without an agent's state.
func newFixture(t *testing.T) *fixture {
	agenttest.SkipIfShort(t)
	kube, err := dynamic.NewForConfig(agenttest.StartedMemberConfig())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, hub: newTestHub(t), kube: kube, logs: &syncBuffer{}}
	list := kube.Resource(secretsResource).Namespace(atoll.SystemNamespace)
	if err := list.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.logs.String())
		}
	})
	return f
}

// start an agent; the function stops it and gives Run's error.
func (f *fixture) start() func() error { return f.failAtStage(nil) }

// failAtStage is start, and tells the agent's stages.
func (f *fixture) failAtStage(stage func(Stage)) func() error { return f.run(stage, func(*Options) {}) }

// run is failAtStage with options that change changes.
func (f *fixture) run(stage func(Stage), change func(*Options)) func() error {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	options := Options{
		MemberConfig: agenttest.StartedMemberConfig(), HubAddress: f.hub.address, CAHash: f.hub.caHash, Token: "atoll1.abcdefghij.secretsecretsecretsecretse", Name: "member1",
		Stage: stage,
		Log:   slog.New(slog.NewTextHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	change(&options)
	go func() { done <- RunAgent(ctx, options) }()
	var once sync.Once
	var err error
	stop := func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	f.t.Cleanup(func() { _ = stop() })
	return stop
}

func (f *fixture) waitFor(what string, ok func() bool) {
	f.t.Helper()
	testwait.UntilTrue(f.t, what, func() bool {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		return ok()
	})
}

func (f *fixture) configMap(ns, name string) map[string]any {
	obj, err := f.kube.Resource(configMaps).Namespace(ns).Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return obj.Object
}

func newConfigMapItem(ns, name, value string) atoll.RenderedItem {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": ns}, "data": map[string]any{"v": value},
	})
	if err != nil {
		panic(err)
	}
	return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: ns, Name: name}, APIVersion: "v1", UID: "t-" + name, Object: body, Hash: atoll.HashParts(body)}
}

func (f *fixture) isReady(bundle string, generation int64) func() bool {
	return func() bool {
		s := f.hub.statuses[bundle]
		return s.Generation == generation && s.State == atoll.RowReady && s.Applied
	}
}

func TestJoinApplyReport(t *testing.T) {
	f := newFixture(t)
	f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: 1, Items: []atoll.RenderedItem{newConfigMapItem("join", "one", "1")}})
	stop := f.start()
	f.waitFor("the bundle is ready", f.isReady("a", 1))
	f.waitFor("the inventory is there", func() bool {
		inv := f.hub.inventory
		return inv.GetNodesReady() == 3 && inv.GetKubernetesVersion() != "" && inv.GetMemberReady() && len(inv.GetApis()) > 50 && inv.GetAllocatable()["cpu"] == "48"
	})
	f.waitFor("the free capacity of its nodes is reported", func() bool {
		room, err := freecapacity.ParseClasses(f.hub.inventory.GetRoom().GetClasses())
		nodes, cpu := int64(0), int64(0)
		for _, c := range room {
			nodes, cpu = nodes+c.Nodes, cpu+c.Nodes*c.CPU
		}
		return err == nil && nodes == 3 && cpu > 40_000 && cpu <= 48_000
	})
	begin := time.Now()
	f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: 2, Items: []atoll.RenderedItem{newConfigMapItem("join", "one", "2")}})
	f.waitFor("the change is applied", f.isReady("a", 2))
	t.Logf("order to report: %v", time.Since(begin))
	if got := f.configMap("join", "one")["data"].(map[string]any)["v"]; got != "2" {
		t.Fatalf("data %v", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	var orders, joins, reports int
	f.hub.read(func() { orders, joins, reports = f.hub.orders, f.hub.joins, f.hub.reports })
	sessions := f.hub.sessions
	f.start()
	f.waitFor("the agent is back", func() bool { return f.hub.sessions > sessions && f.hub.inventory.GetNodesReady() == 3 })
	f.waitFor("nothing was sent again", func() bool {
		return f.hub.orders == orders && f.hub.joins == joins && f.hub.reports == reports
	})

	f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: 3, Remove: true, DeletedNamespaces: []string{"join"}})
	f.waitFor("the bundle is removed", func() bool { return f.hub.statuses["a"].State == atoll.RowRemoved })
	if f.configMap("join", "one") != nil {
		t.Fatal("the object is still there")
	}
	f.waitFor("the bundle is forgotten", func() bool {
		_, err := f.kube.Resource(secretsResource).Namespace(atoll.SystemNamespace).Get(t.Context(), "atoll-bundle-a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if logs := f.logs.String(); strings.Contains(logs, "secretsecret") || strings.Contains(logs, "PRIVATE") {
		t.Fatal("a secret is in the logs")
	}
}

// TestTheJoinTokenIsRemovedFromItsSecret: once the hub has let the agent in. The agent then starts
// without a token, leaves a newer token alone until its next start, and keeps one on request.
func TestTheJoinTokenIsRemovedFromItsSecret(t *testing.T) {
	f := newFixture(t)
	all := f.kube.Resource(secretsResource).Namespace(atoll.SystemNamespace)
	t.Cleanup(func() { _ = all.Delete(context.WithoutCancel(t.Context()), "joining", metav1.DeleteOptions{}) })
	put := func(token string) {
		t.Helper()
		secret := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "joining"},
			"stringData": map[string]any{"hub": f.hub.address, "token": token + "\n"},
		}}
		if _, err := all.Apply(t.Context(), "joining", secret, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	var keep bool
	run := func() func() error {
		return f.run(nil, func(o *Options) { o.Token, o.TokenSecret, o.KeepToken = "", "joining", keep })
	}
	state := func() string {
		u, err := all.Get(t.Context(), "joining", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		return fmt.Sprintf("keys %v, removed %s", slices.Sorted(maps.Keys(data)), u.GetAnnotations()["agent.atoll.dev/removed-token"])
	}
	const first, second = "atoll1.aaaaaaaaaa.secretsecretsecretsecretse", "atoll1.bbbbbbbbbb.secretsecretsecretsecretse"
	restart := func(stop func() error) func() error {
		t.Helper()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		sessions := f.hub.sessions
		stop = run()
		f.waitFor("the agent is back", func() bool { return f.hub.sessions > sessions })
		return stop
	}

	if _, err := f.kube.Resource(namespacesResource).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": atoll.SystemNamespace},
	}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	put(first)
	stop := run()
	f.waitFor("the token is removed", func() bool { return state() == "keys [hub], removed aaaaaaaaaa" })
	if f.hub.token != first {
		t.Errorf("it joined by the token %q", f.hub.token)
	}
	stop = restart(stop)
	put(second)
	f.hub.read(func() { f.hub.live.end() })
	sessions := 0
	f.hub.read(func() { sessions = f.hub.sessions })
	f.waitFor("another session", func() bool { return f.hub.sessions > sessions })
	if got := state(); got != "keys [hub token], removed aaaaaaaaaa" {
		t.Errorf("a token that the agent has not read: %s", got)
	}
	keep = true
	stop = restart(stop)
	if got := state(); got != "keys [hub token], removed aaaaaaaaaa" {
		t.Errorf("a token that is to be kept: %s", got)
	}
	keep = false
	restart(stop)
	f.waitFor("the second token is removed", func() bool { return state() == "keys [hub], removed bbbbbbbbbb" })
	if logs := f.logs.String(); strings.Contains(logs, "secretsecret") {
		t.Error("a token is in the logs")
	}
}

func TestWithoutHub(t *testing.T) {
	f := newFixture(t)
	f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: 1, Items: []atoll.RenderedItem{newConfigMapItem("alone", "one", "1")}})
	stop := f.start()
	f.waitFor("the bundle is ready", f.isReady("a", 1))
	f.hub.goOffline()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := f.kube.Resource(configMaps).Namespace("alone").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.waitFor("it is made again without the hub", func() bool { return f.configMap("alone", "one") != nil })
	f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: 2, Items: []atoll.RenderedItem{newConfigMapItem("alone", "one", "2")}})
	f.hub.goOnline()
	f.waitFor("the agent catches up", f.isReady("a", 2))
}

func TestCutLinks(t *testing.T) {
	f := newFixture(t)
	f.start()
	f.waitFor("the agent is there", func() bool { return f.hub.sessions > 0 })
	for n := int64(1); n <= 5; n++ {
		f.hub.orderManifest(atoll.Manifest{Bundle: "a", Generation: n, Items: []atoll.RenderedItem{newConfigMapItem("cut", "one", fmt.Sprint(n))}})
		f.hub.read(func() { f.hub.live.end() })
		f.waitFor("the change arrives", f.isReady("a", n))
	}
	seq := int64(0)
	f.hub.read(func() { seq = f.hub.statuses["a"].Seq })
	if seq == 0 {
		t.Fatal("reports are not numbered")
	}
}

func TestOneApplierPerMember(t *testing.T) {
	f := newFixture(t)
	first := f.start()
	f.waitFor("the first agent is there", func() bool { return f.hub.sessions == 1 })
	f.start()
	f.waitFor("the second says that it waits", func() bool { return strings.Contains(f.logs.String(), "another agent works on this member") })
	if n := f.hub.sessions; n != 1 {
		t.Fatalf("%d sessions", n)
	}
	if err := first(); err != nil {
		t.Fatal(err)
	}
	f.waitFor("the second takes over", func() bool { return f.hub.sessions == 2 })
}

// TestALeaseOutlivesNoPanic: what is left of an agent that panicked, while it ended by itself,
// does not keep the next one from the member.
func TestALeaseOutlivesNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		ctx = crash.ContainPanics(ctx, func(*crash.Panic) {})
		given := make(chan struct{})
		go func() { waitForLeaseRelease(ctx, t.Context()); close(given) }()
		end()
		time.Sleep(2 * lingers)
		select {
		case <-given:
			t.Error("the lease of an agent that ends is given back before it has ended")
		default:
		}
		go func() { defer crash.RecoverContained(ctx); panic("late") }()
		time.Sleep(lingers + time.Second)
		select {
		case <-given:
		default:
			t.Error("the lease of an agent that panicked is kept")
		}
	})
}

// TestAnAgentReportsItsStages: that it stands by, for which holder, and that it works.
func TestAnAgentReportsItsStages(t *testing.T) {
	f := newFixture(t)
	var mu sync.Mutex
	said := map[string][]string{}
	note := func(who string) func(Stage) {
		return func(s Stage) {
			mu.Lock()
			defer mu.Unlock()
			word := fmt.Sprintf("works %t, for another holder %t, kept %t", s.Works, s.Holder != "", s.Err != nil)
			if last := said[who]; len(last) == 0 || last[len(last)-1] != word {
				said[who] = append(last, word)
			}
		}
	}
	has := func(who string, want ...string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(said[who], want)
		}
	}
	works, waits := "works true, for another holder false, kept false", "works false, for another holder true, kept false"
	first := f.failAtStage(note("first"))
	f.waitFor("the first works", has("first", works))
	f.failAtStage(note("second"))
	f.waitFor("the second stands by", has("second", waits))
	if err := first(); err != nil {
		t.Fatal(err)
	}
	f.waitFor("the second works", has("second", waits, works))
	if !has("first", works)() {
		t.Errorf("the first said %v", said["first"])
	}
}

// TestAMemberOfAnotherClusterIsLeftAlone: it is asked whose the member is before the agent
// works, or stands by.
func TestAMemberOfAnotherClusterIsLeftAlone(t *testing.T) {
	f := newFixture(t)
	stop := f.start()
	f.waitFor("it has joined", func() bool { return f.hub.sessions == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	not, asked := errors.New("it is another's"), ""
	err := RunAgent(t.Context(), Options{
		MemberConfig: agenttest.StartedMemberConfig(), HubAddress: f.hub.address, CAHash: f.hub.caHash, Name: "member2",
		Whose: func(name, uid string) error { asked = name + " " + uid; return not },
		Stage: func(s Stage) { t.Errorf("it says that it works: %+v", s) },
		Log:   slog.New(slog.NewTextHandler(f.logs, nil)),
	})
	if !errors.Is(err, not) || len(asked) < 3 || f.hub.sessions != 1 {
		t.Errorf("asked about %q it ends with %v, after %d sessions", asked, err, f.hub.sessions)
	}
}

func TestRefusedJoin(t *testing.T) {
	f := newFixture(t)
	f.hub.refuse = codes.PermissionDenied
	f.start()
	f.waitFor("the refusal is reported", func() bool {
		return strings.Contains(f.logs.String(), "refuses to let this cluster in")
	})
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.hub.joins != 1 {
		t.Fatalf("%d tries", f.hub.joins)
	}
}
