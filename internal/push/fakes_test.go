package push

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/trust/handshake"
)

// table of Clusters in memory.
type table struct {
	mu     sync.Mutex
	byName map[string]*v1alpha1.Cluster
	fn     func(string)
}

func (t *table) Get(name string) (*v1alpha1.Cluster, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byName[name]
	return c, ok
}

func (t *table) List() []*v1alpha1.Cluster {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byName))
}

func (t *table) Subscribe(fn func(string)) { t.fn = fn }

func (t *table) put(name, uid string, spec v1alpha1.ClusterSpec) {
	t.mu.Lock()
	t.byName[name] = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Spec: spec}
	t.mu.Unlock()
	t.fn(name)
}

func (t *table) dropCluster(name string) {
	t.mu.Lock()
	delete(t.byName, name)
	t.mu.Unlock()
	t.fn(name)
}

// agents stand for the real ones, and note what becomes of them.
type agents struct {
	t  testing.TB
	mu sync.Mutex
	// running are the tokens of the member by which each runs, by cluster.
	running map[string]string
	starts  map[string]int
	at      map[string]time.Time // of the last start
	// run is what the agent of a cluster does; default: it works until its context ends.
	run map[string]func(ctx context.Context, o agent.Options) error
}

func (a *agents) runAgent(ctx context.Context, o agent.Options) error {
	a.mu.Lock()
	if with, two := a.running[o.Name]; two {
		a.t.Errorf("an agent of %s starts while another runs, by %s", o.Name, with)
	}
	a.running[o.Name] = o.MemberConfig.BearerToken
	a.starts[o.Name]++
	a.at[o.Name] = time.Now()
	run := a.run[o.Name]
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.running, o.Name)
		a.mu.Unlock()
	}()
	if run != nil {
		return run(ctx, o)
	}
	o.Stage(agent.Stage{Works: true})
	<-ctx.Done()
	return nil
}

func (a *agents) startsOf(cluster string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.starts[cluster]
}

func (a *agents) runningNow() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.running)
}

// listed Secrets: the fake store has no watch that begins with a list.
type listed struct{ typedcorev1.SecretInterface }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// world of a Supervisor.
type world struct {
	t        testing.TB
	clusters *table
	agents   *agents
	secrets  typedcorev1.SecretInterface
	tell     func(c *v1alpha1.Cluster, reason atoll.Reason, message string)
	runner   string
	metrics  prometheus.Registerer

	mu       sync.Mutex
	reported map[string]*clusterstatus.Pushed // by UID; nil: it was said that there is none
}

// newWorld without a Supervisor.
func newWorld(t testing.TB) *world {
	return &world{
		t: t, clusters: &table{byName: map[string]*v1alpha1.Cluster{}, fn: func(string) {}}, reported: map[string]*clusterstatus.Pushed{},
		agents:  &agents{t: t, running: map[string]string{}, starts: map[string]int{}, at: map[string]time.Time{}, run: map[string]func(context.Context, agent.Options) error{}},
		secrets: listed{fake.NewClientset().CoreV1().Secrets(atoll.SystemNamespace)},
	}
}

// startSupervisor until stop is called, which returns when no agent runs.
func (w *world) startSupervisor() (stop func()) {
	s := New(Options{
		Clusters: w.clusters, Secrets: w.secrets, Hub: "127.0.0.1:6444", Credentials: fakeCredentials{}, Run: w.agents.runAgent,
		NotifyAdmin: w.tell, Runner: w.runner, Metrics: w.metrics,
		Inventory: pushedFunc(func(uid string, p *clusterstatus.Pushed) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reported[uid] = p
		}),
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		if left := w.agents.runningNow(); len(left) > 0 {
			w.t.Errorf("agents run after Run has returned: %v", left)
		}
	}
}

// storeCredentials the hub credentials of a cluster, by a token.
func (w *world) storeCredentials(cluster, uid, token string) string {
	w.t.Helper()
	secret, err := handshake.NewPushSecret(cluster, types.UID(uid), handshake.Credentials{Server: "https://" + cluster + ":6443", Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	secret.Name = fmt.Sprintf("push-%s-%s", cluster, token)
	secret.CreationTimestamp = metav1.Now()
	w.create(secret)
	return secret.Name
}

func (w *world) create(secret *corev1.Secret) {
	w.t.Helper()
	if _, err := w.secrets.Create(w.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// expectAgents checks which agents run, and by what tokens: "cluster=token", by commas.
func (w *world) expectAgents(when, want string) {
	w.t.Helper()
	var has []string
	for cluster, token := range w.agents.runningNow() {
		has = append(has, cluster+"="+token)
	}
	slices.Sort(has)
	if got := strings.Join(has, ","); got != want {
		w.t.Errorf("%s: agents run of %q, want %q", when, got, want)
	}
}

// expectStatus checks the reported reason of a cluster; empty: there is no report.
func (w *world) expectStatus(when, uid string, want atoll.Reason) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := ""
	if p := w.reported[uid]; p != nil {
		got = string(p.Reason)
	}
	if got != string(want) {
		w.t.Errorf("%s: the report of %s is %q, want %q", when, uid, got, want)
	}
}

// fakeCredentials has one pin, and vouchers that can be read.
type fakeCredentials struct{}

func (fakeCredentials) CAPins() []string { return []string{"sha256:00"} }

func (fakeCredentials) NewVoucher(cluster, uid string) string { return cluster + "/" + uid }

// pushedFunc is called with the states of agents.
type pushedFunc func(uid string, p *clusterstatus.Pushed)

func (f pushedFunc) SetPushAgentState(uid string, p *clusterstatus.Pushed) { f(uid, p) }
