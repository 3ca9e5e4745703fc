package push

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/filteredwatch"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// backoffLeast and backoffMost are between the end of an agent that failed and its
	// next start.
	backoffLeast = time.Second
	backoffMost  = time.Minute
	// leaveBehind is for how long the end of an agent that panicked is waited for: longer
	// than the Lease in the member lasts, which it does not renew any more.
	leaveBehind = 20 * time.Second
)

// Clusters is the table of members. It holds no lock of its own while it calls
// subscribers.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Credentials of the hub and of its agents.
type Credentials interface {
	// CAPins are the hashes by which the hub's CA is known now and was before, newest first.
	CAPins() []string
	// NewVoucher gives the token by which the agent of that Cluster may join.
	NewVoucher(cluster, uid string) string
}

// Inventory records the states of agents.
type Inventory interface {
	// SetPushAgentState is called with the state of a Cluster's agent; nil: this hub does not report it,
	// or not any more.
	SetPushAgentState(uid string, p *clusterstatus.Pushed)
}

// Options of a Supervisor. All are required unless a default is stated.
type Options struct {
	Clusters Clusters
	// Secrets of the hub's own namespace, read by the identity with that right.
	Secrets typedcorev1.SecretInterface
	// Hub is HOST:PORT of this hub's own gateway, for clients in its process.
	Hub string
	// Self is the address of this hub for other hubs on one store; default: it is the
	// only one.
	Self string
	// Runner is FLEET@HUB, by which the Leases of members name this hub: the former is the
	// same for all hubs on the store, and no other's.
	Runner      string
	Credentials Credentials
	Inventory   Inventory
	// AllowedNetworks are dialled although they have loopback, link-local or other addresses that are
	// refused. Default: none.
	AllowedNetworks []netip.Prefix
	// NotifyAdmin sends the administrator of a Cluster an Event; it must not block. Default: no Event.
	NotifyAdmin func(c *v1alpha1.Cluster, reason atoll.Reason, message string)
	// Run an agent until ctx ends; default agent.Run.
	Run func(ctx context.Context, o agent.Options) error
	// Metrics are registered here; default: nowhere.
	Metrics prometheus.Registerer
	// Log; default slog.Default().
	Log *slog.Logger
}

// AgentSupervisor supervises agents. Make it with New.
type AgentSupervisor struct {
	o       Options
	starts  *pace.Limiter
	answers *responseMemoryBudget
	secrets cache.Store // by the names of Clusters, index byCluster
	gauge   *prometheus.GaugeVec
	panics  prometheus.Counter
	hubs    atomic.Pointer[[]string] // that serve; nil: not known yet

	mu      sync.Mutex
	life    context.Context // of Run, once Secrets were read; nil: nothing is kept
	keepers map[string]*agentKeeper
	running sync.WaitGroup
}

// New returns an AgentSupervisor that follows the table from when it runs.
func New(o Options) *AgentSupervisor {
	if o.Run == nil {
		o.Run = agent.RunAgent
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &AgentSupervisor{o: o, starts: pace.AgentStarts.NewLimiter(), answers: newResponseMemoryBudget(allAnswersMost), keepers: map[string]*agentKeeper{}, gauge: metrictable.PushClusters.NewGaugeVec(), panics: metrictable.PushPanics.NewCounter()}
	if o.Metrics != nil {
		o.Metrics.MustRegister(s.gauge, s.panics)
	}
	o.Clusters.Subscribe(s.reconcileCluster)
	return s
}

// byCluster is the index of Secrets by the Cluster that they are for.
const byCluster = "cluster"

// Run agents until ctx ends and all of them are down.
func (s *AgentSupervisor) Run(ctx context.Context) error {
	ours := fields.OneTermEqualSelector("type", string(handshake.PushSecretType)).String()
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: filteredwatch.FieldSelectedSource(s.o.Secrets, ours),
		ObjectType:    &corev1.Secret{},
		Indexers: cache.Indexers{byCluster: func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Secret).Labels[handshake.LabelPush]}, nil
		}},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    s.secretChanged,
			UpdateFunc: func(before, now any) { s.secretChanged(before); s.secretChanged(now) },
			DeleteFunc: s.secretChanged,
		},
	})
	s.secrets = store
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { controller.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return nil
	}
	s.mu.Lock()
	s.life = ctx
	s.mu.Unlock()
	for _, c := range s.o.Clusters.List() {
		s.reconcileCluster(c.Name)
	}
	<-ctx.Done()
	s.mu.Lock()
	s.life = nil
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

func (s *AgentSupervisor) secretChanged(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		s.reconcileCluster(secret.Labels[handshake.LabelPush])
	}
}

// reconcileCluster looks at a Cluster: its keeper looks, or a new one starts.
func (s *AgentSupervisor) reconcileCluster(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		return
	}
	if k := s.keepers[cluster]; k != nil {
		wakeup.WakeReader(k.changed) // it will look anyway
		return
	}
	if _, any := s.wantedState(cluster); !any {
		return
	}
	k := &agentKeeper{s: s, cluster: cluster, changed: make(chan struct{}, 1)}
	s.keepers[cluster] = k
	life := s.life
	s.running.Go(func() { k.run(life) })
}

// removeKeeperIfUnwanted ends the keeper of a Cluster without anything to keep, unless that has changed
// since.
func (s *AgentSupervisor) removeKeeperIfUnwanted(cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, any := s.wantedState(cluster)
	if !any {
		delete(s.keepers, cluster)
	}
	return !any
}

// wantedAgent is what is to be kept of a Cluster. Equal ones are ==.
type wantedAgent struct {
	uid         string
	credentials handshake.Credentials
	// runs: an agent has to run. Otherwise this is reported.
	runs    bool
	instead clusterstatus.Pushed
}

// wantedState returns the desired state of a Cluster; any is false where there is nothing to keep.
func (s *AgentSupervisor) wantedState(cluster string) (w wantedAgent, any bool) {
	c, ok := s.o.Clusters.Get(cluster)
	if !ok || !s.isServedByThisHub(cluster) {
		return wantedAgent{}, false
	}
	w.uid = string(c.UID)
	secret := s.chooseFor(c).secret
	switch {
	case secret == nil && c.Spec.IsPushed():
		w.instead = missingCredentials(cluster)
	case secret == nil:
		return wantClearedReport(c)
	case c.Spec.Mode != v1alpha1.ModePush:
		w.instead = unusedCredentials(cluster)
	case !c.Spec.Accepted:
		return wantClearedReport(c)
	default:
		var err error
		if w.credentials, err = handshake.ParsePushSecret(secret); err != nil {
			w.instead = malformedCredentials(secret.Name, err)
		}
		w.runs = err == nil
	}
	return w, true
}

// chooseFor chooses among the Secrets for a Cluster.
func (s *AgentSupervisor) chooseFor(c *v1alpha1.Cluster) secretChoice {
	found, err := s.secrets.(cache.Indexer).ByIndex(byCluster, c.Name)
	if err != nil { // there is no such index, which there is
		return secretChoice{}
	}
	secrets := make([]*corev1.Secret, len(found))
	for i, f := range found {
		secrets[i] = f.(*corev1.Secret)
	}
	return chooseCredentials(c.Name, c.UID, secrets)
}
