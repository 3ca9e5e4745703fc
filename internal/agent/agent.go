// Package agent is the composition of the agent that runs beside one member API
// server: it joins the hub, applies the hub's orders in the member, keeps them applied, and
// reports.
//
// Contract: Run owns everything that it starts and ends it before it returns. The
// member is healed whether or not the hub can be reached; nothing is applied or
// deleted while another agent holds the member's lease. All state lies in the
// member, in the namespace atoll.SystemNamespace, so that an agent may be killed
// at any moment and started anywhere.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/apply"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/lease"
	"atoll.dev/atoll/internal/agent/limits"
	"atoll.dev/atoll/internal/agent/link"
	"atoll.dev/atoll/internal/agent/live"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/membudget"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/proxy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/agent/tokensecret"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
)

// Options of an agent. All are required unless a default is stated.
type Options struct {
	// MemberConfig reaches the member's API server. It is not changed.
	MemberConfig *rest.Config
	// GuardAnswers wraps the transport to the member's API, except for people's requests and logs,
	// which are passed on in pieces. It bounds the answers that the agent keeps. Default: none.
	GuardAnswers func(http.RoundTripper) http.RoundTripper
	// HubAddress is HOST:PORT of the hub's gateway, several by commas for several
	// hubs on one etcd, CAHash the hash of their CA's key ("sha256:…").
	HubAddress, CAHash string
	// BalancerCA verifies, in PEM and beside the system's roots, load balancers that
	// terminate TLS before the hub; default: none.
	BalancerCA []byte
	// FormerCAHashes are those of CAs that the same hub had before; default none.
	FormerCAHashes []string
	// Token lets the cluster join; of no use once it has. Default: that of TokenSecret.
	Token string
	// TokenSecret names the Secret of the member, in the namespace atoll.SystemNamespace, from which
	// the token is read, and removed once the cluster has joined. KeepToken leaves it there.
	// Default: none.
	TokenSecret string
	KeepToken   bool
	// Name that the agent requests for its cluster.
	Name string
	// Whose is called with the cluster that the hub accepted the member as, before anything else: an
	// error ends Run. Default: every cluster is right, and the hub uses that name.
	Whose func(name, uid string) error
	// Runner names the program that runs the agent. The holder identity in the member's Lease
	// begins with it. Default: the machine's name.
	Runner string
	// MemoryLimit of the agent, in bytes, which membudget.DivideLimit divides. Default: none.
	MemoryLimit uint64
	// Version of the agent; default atoll.Version.
	Version string
	// Registry takes the metrics; default: a new one.
	Registry prometheus.Registerer
	// Stage is called each time that the agent reaches another stage, by one goroutine at a time.
	// It must not block. Default: no call.
	Stage func(Stage)
	// Log; default slog.Default().
	Log *slog.Logger

	// carried reaches the member's API server for what is passed on in pieces.
	carried *rest.Config
}

// Stage of an agent: it waits for the member, stands by, or works.
type Stage struct {
	// Works: the agent holds the member's lease, and the member answers.
	Works bool
	// Holder of the lease, for whose end the agent stands by; empty: there is none.
	Holder string
	// Err of the member, or on the way to it, which keeps the agent; it tries on.
	Err error
}

// qps and burst bound the requests of one agent to its member, whose API server has its own
// fairness: they only keep a large Bundle, at two requests an object, from taking all
// of a small member.
const (
	qps   = 200
	burst = 400
)

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// lingers is how long an agent that panicked, all of which is to end, keeps its lease at
// most: its requests to the member are answered or given up by then.
const lingers = 15 * time.Second

// RunAgent runs the agent until ctx ends. When another agent takes the member over, it waits
// for its turn again.
func RunAgent(ctx context.Context, o Options) error {
	o, err := o.validatedWithDefaults()
	if err != nil {
		return err
	}
	metrics := &metrics{apply: apply.NewMetrics(o.Registry), link: link.NewMetrics(o.Registry)}
	for {
		err := runUntilLeaseLost(ctx, o, metrics)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, lease.ErrLost), errors.Is(err, store.ErrFenced):
			o.Log.Warn("another agent took over this member; waiting for its end", "err", err)
		default:
			return err
		}
	}
}

type metrics struct {
	apply *apply.Metrics
	link  *link.Metrics
}

func (o Options) validatedWithDefaults() (Options, error) {
	switch {
	case o.MemberConfig == nil:
		return o, errors.New("agent: MemberConfig is missing")
	case o.HubAddress == "" || o.CAHash == "" || o.Name == "":
		return o, errors.New("agent: HubAddress, CAHash and Name are all needed")
	}
	o.MemberConfig = rest.CopyConfig(o.MemberConfig)
	o.MemberConfig.QPS, o.MemberConfig.Burst = qps, burst
	o.MemberConfig.WarningHandler = rest.NoWarnings{}
	if o.Version == "" {
		o.Version = atoll.Version
	}
	if o.MemberConfig.UserAgent == "" {
		o.MemberConfig.UserAgent = "atoll-agent/" + o.Version
	}
	o.carried = rest.CopyConfig(o.MemberConfig)
	if o.GuardAnswers != nil {
		o.MemberConfig.Wrap(o.GuardAnswers)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Stage == nil {
		o.Stage = func(Stage) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}

// agentComponents are the components of one agent while it holds the lease.
type agentComponents struct {
	lease     *lease.Lease
	inventory *inventory.Inventory
	limits    *limits.AgentPolicyFollower
	watcher   *observe.Watcher
	engine    *apply.MemberApplier
	proxy     *proxy.MemberAPIProxy
	link      *link.HubLink
	joining   *tokensecret.JoinTokenSecretClient // nil without one
	working   bool                               // all parts run
}

// recordAPIAnswer takes an answer of the member's API, or its error.
func (p *agentComponents) recordAPIAnswer(o Options, err error) {
	if p.inventory.ReportAPIAnswer(err) && p.engine != nil {
		p.engine.RetryTransportFailures()
	}
	if p.working && (err == nil || !p.lease.IsHeld()) {
		o.Stage(Stage{Works: err == nil, Err: err})
	}
}

// runUntilLeaseLost waits for the lease and works until it is lost or ctx ends.
func runUntilLeaseLost(ctx context.Context, o Options, metrics *metrics) error {
	client, err := member.New(o.MemberConfig)
	if err != nil {
		return err
	}
	var p agentComponents
	p.inventory, err = inventory.New(inventory.Options{
		Config: o.MemberConfig, Client: client, Log: o.Log,
		Changed: func() { p.link.InventoryChanged() },
		Served:  func() { p.limits.APIsChanged(); p.engine.APIsChanged() },
	})
	if err != nil {
		return err
	}
	p.limits = limits.New(limits.Options{Client: client, Changed: p.reevaluateAgentPolicy, Relabelled: p.namespaceLabelsChanged, Log: o.Log})
	answers := func(err error) { p.recordAPIAnswer(o, err) }
	p.lease, err = lease.New(o.MemberConfig, atoll.SystemNamespace, lease.HolderIdentity(o.Runner), answers, o.Log)
	if err != nil {
		return err
	}
	stored, err := store.New(o.MemberConfig, atoll.SystemNamespace, p.lease.ConfirmHeld)
	if err != nil {
		return err
	}
	budget := membudget.DivideLimit(o.MemoryLimit)
	stored.LimitMemory(budget.Stored)
	if err := o.retryUntilMemberAnswers(ctx, stored.EnsureNamespace); err != nil {
		return err
	}
	if err := o.checkMemberOwner(ctx, stored); err != nil {
		return err
	}
	if err := p.lease.AcquireLease(ctx, func(holder string, err error) { o.Stage(Stage{Holder: holder, Err: err}) }); err != nil {
		return err
	}
	contents, err := o.loadStoredState(ctx, client, stored)
	if err == nil {
		err = o.retryUntilMemberAnswers(ctx, p.limits.Read)
	}
	if err != nil {
		return err
	}
	p.reportNodeLabels()
	p.watcher = observe.NewWatcher(client)
	if p.proxy, err = p.newTunnelServer(o, client, budget.Watches); err != nil {
		return err
	}
	token, admitted, err := p.readJoinToken(ctx, o, client)
	if err != nil {
		return err
	}
	p.link = link.New(link.Options{
		Hub: o.HubAddress, CAHash: o.CAHash, FormerCAHashes: o.FormerCAHashes, BalancerCA: o.BalancerCA,
		Token: token, Admitted: admitted, Name: o.Name, Version: o.Version,
		Store: stored, Inventory: p.inventory.CurrentSnapshot, Tunnel: p.proxy.ServeTunnel, Memory: budget, Metrics: metrics.link, Log: o.Log,
	}, contents)
	p.engine = apply.New(apply.Options{
		Client: client, Store: stored, Lease: p.lease,
		Watch: p.watcher, Policy: p.limits.CurrentPolicy, Changed: p.link.BundleStatusChanged, Metrics: metrics.apply, Log: o.Log,
	}, contents)
	p.working = true
	o.Stage(Stage{Works: true})
	o.Log.Info("working", "member", o.MemberConfig.Host, "bundles", len(contents.Bundles), "objects", len(contents.Records))
	return p.runComponents(ctx)
}

// readJoinToken returns the token by which the cluster joins, and a function to call when the hub
// has let the agent in.
func (p *agentComponents) readJoinToken(ctx context.Context, o Options, client *member.Client) (token string, admitted func(), err error) {
	if o.TokenSecret == "" {
		return o.Token, nil, nil
	}
	p.joining = tokensecret.New(tokensecret.Options{
		Secrets: client.DynamicClient().Resource(secretsResource).Namespace(atoll.SystemNamespace),
		Name:    o.TokenSecret, Keep: o.KeepToken, Log: o.Log,
	})
	err = o.retryUntilMemberAnswers(ctx, func(ctx context.Context) (err error) {
		token, err = p.joining.ReadToken(ctx)
		return err
	})
	return token, p.joining.NotifyAdmitted, err
}

// reevaluateAgentPolicy is called when the member's administrator changes the limits.
func (p *agentComponents) reevaluateAgentPolicy() {
	if p.engine == nil {
		return // it is read for the first time
	}
	p.engine.ReevaluateAgentPolicy()
	p.proxy.ReevaluatePolicy()
	p.reportNodeLabels()
}

// reportNodeLabels sets the node labels that the inventory reports. They stay while the policy is not understood.
func (p *agentComponents) reportNodeLabels() {
	if keys, isKnown := p.limits.CurrentPolicy().NodeLabels(); isKnown {
		p.inventory.ReportNodeLabels(keys)
	}
}

// namespaceLabelsChanged is called when the labels of a namespace change, by which the policy
// selects.
func (p *agentComponents) namespaceLabelsChanged(namespace string) {
	p.engine.NamespaceLabelsChanged(namespace)
} // all parts are there before they run

// newTunnelServer returns a server of tunnels, which are served for people, and for the hub.
func (p *agentComponents) newTunnelServer(o Options, client *member.Client, watchMemory int) (*proxy.MemberAPIProxy, error) {
	transport, err := proxy.NewTransport(o.carried)
	if err != nil {
		return nil, err
	}
	// The engine is made after the sources of its events, and serves when all run.
	shown, err := live.New(live.Options{
		Config: o.MemberConfig, Transport: transport, Client: client, Records: ownershipRecords{p}, Foreign: ownershipRecords{p}, WatchMemory: watchMemory, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Options{Config: o.MemberConfig, Transport: transport, Live: shown, Policy: p.limits.CurrentPolicy, Log: o.Log})
}

// ownershipRecords are the engine's.
type ownershipRecords struct{ *agentComponents }

func (r ownershipRecords) AppliedUID(key atoll.ItemKey) (string, bool) {
	return r.engine.AppliedUID(key)
}
func (r ownershipRecords) NamespacesWithRecords() []string { return r.engine.NamespacesWithRecords() }
func (r ownershipRecords) ClaimTemplateNames(key atoll.ItemKey) []string {
	return r.engine.ClaimTemplateNames(key)
}
func (r ownershipRecords) ForeignObjects(ctx context.Context, namespace string) atoll.ForeignObjects {
	return r.engine.ForeignObjects(ctx, namespace)
}

// runComponents runs all parts until one fails or ctx ends. The lease is given back last.
func (p *agentComponents) runComponents(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	group, work := errgroup.WithContext(work)
	leaseCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan error, 1)
	go func() { defer crash.RecoverContained(ctx); waitForLeaseRelease(ctx, leaseCtx); release() }()
	go func() {
		var err error
		defer func() { stop(); kept <- err }()
		defer crash.RecoverContained(ctx)
		err = p.lease.KeepRenewing(leaseCtx)
	}()
	runs := []func(context.Context){
		p.inventory.Run, p.limits.Run, p.engine.Run, p.proxy.Run,
		func(ctx context.Context) { p.watcher.Run(ctx, p.engine, p.engine) },
	}
	if p.joining != nil {
		runs = append(runs, p.joining.RemoveAfterAdmission)
	}
	for _, run := range runs {
		group.Go(func() error { defer crash.RecoverContained(ctx); run(work); return nil })
	}
	group.Go(func() error { defer crash.RecoverContained(ctx); return p.link.Run(work, p.engine, p.engine) })
	err := group.Wait()
	release()
	return errors.Join(err, <-kept)
}

// waitForLeaseRelease waits until the lease is given back, or for a while after a panic, also where all ended by
// itself before: what that left behind may wait for ever, and the next agent must not.
func waitForLeaseRelease(ctx, leaseCtx context.Context) {
	select {
	case <-crash.PanicContained(ctx):
		pause.WaitFor(leaseCtx, lingers)
	case <-leaseCtx.Done():
	}
}

// loadStoredState reads what is stored and what the member serves, as soon as it answers.
func (o *Options) loadStoredState(ctx context.Context, client *member.Client, stored *store.AgentStore) (contents store.StoredContents, err error) {
	err = o.retryUntilMemberAnswers(ctx, func(ctx context.Context) error {
		if _, err := client.DiscoverAPIs(ctx); err != nil {
			return err
		}
		if contents, err = stored.Open(ctx); err != nil {
			return err
		}
		return apply.RecoverRecords(ctx, client, &contents)
	})
	for _, broken := range contents.Broken {
		o.Log.Error("a part of the agent's state cannot be read; what it was about stays in the member, and the hub sends it again", "part", broken)
	}
	return contents, err
}

// checkMemberOwner returns an error when the member belongs to another cluster. A standby for
// another cluster's agent would never report this.
func (o *Options) checkMemberOwner(ctx context.Context, stored *store.AgentStore) error {
	if o.Whose == nil {
		return nil
	}
	id, err := stored.LoadIdentity(ctx)
	if err != nil || id == nil || id.ClusterUID == "" {
		return err
	}
	return o.Whose(id.ClusterName, id.ClusterUID)
}

// retryUntilMemberAnswers repeats what needs the member until it works, or ctx ends.
func (o *Options) retryUntilMemberAnswers(ctx context.Context, do func(context.Context) error) error {
	told := ""
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && told != err.Error() {
			told = err.Error()
			o.Stage(Stage{Err: err})
			o.Log.Warn("the member does not answer yet; trying on", "err", err)
		}
		if !pause.WaitFor(ctx, wait) {
			return fmt.Errorf("wait for the member: %w", ctx.Err())
		}
	}
}
