package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	statePending  = "Pending"
	stateAccepted = "Accepted"
	// refusedToken is all that a bearer of a bad token learns.
	refusedToken = "the join token is refused; the hub's log says why. Ask the hub's administrator for a new one (atoll token create)"
)

// joining is one call of Join.
type joining struct {
	*pb.JoinRequest
	key  trust.Request
	from string
	// token was reserved for this call.
	token    *handshake.StoredToken
	showed   trust.Token
	hasToken bool
	looked   bool // whether the Cluster is in the store
	vouched  bool // the hub itself runs the agent
}

// Join serves one request for a certificate.
func (g *Gateway) Join(ctx context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	if err := g.serving(); err != nil {
		return nil, err
	}
	j := &joining{JoinRequest: r, from: address(ctx)}
	reply, err := g.join(ctx, j)
	if err == nil || status.Code(err) == codes.Canceled {
		return reply, err
	}
	reason := status.Code(err).String()
	g.metrics.refused.WithLabelValues("join", reason).Inc()
	cause := err
	var r2 *refusal
	if errors.As(err, &r2) {
		cause, err = r2.cause, status.Error(r2.code, r2.told)
	}
	g.log.Warn("refused a join", "cluster", r.GetName(), "from", j.from, "reason", reason, "err", cause)
	return nil, err
}

// refusal tells the agent one thing and the hub's log another.
type refusal struct {
	code  codes.Code
	told  string
	cause error
}

func (r *refusal) Error() string              { return r.told }
func (r *refusal) GRPCStatus() *status.Status { return status.New(r.code, r.told) }

func (g *Gateway) join(ctx context.Context, j *joining) (*pb.JoinReply, error) {
	var err error
	if j.key, err = trust.ParseRequest(j.GetCsr()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if bad := validation.IsDNS1123Label(j.GetName()); len(bad) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "cluster name %q: %s", j.GetName(), bad[0])
	}
	if j.GetToken() != "" {
		if j.showed, err = trust.ParseToken(j.GetToken()); err != nil {
			return nil, &refusal{codes.PermissionDenied, refusedToken, err}
		}
		j.hasToken = true
	}
	changed, stop := g.waiters.wait(j.GetName())
	defer stop()
	timeout := time.NewTimer(g.o.JoinWait)
	defer timeout.Stop()
	for {
		reply, err := g.advance(ctx, j)
		// Who asks for the first time is told at once what to wait for, and asks again.
		if err != nil || reply.GetState() == stateAccepted || j.token != nil {
			return reply, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return reply, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-g.running.Done():
			return nil, status.Error(codes.Unavailable, "the hub stops; ask again")
		}
	}
}

// advance does what can be done now and says where the request stands. Who is not in
// the table is new, as a rule, so that it is not read first whether he is in the store.
func (g *Gateway) advance(ctx context.Context, j *joining) (*pb.JoinReply, error) {
	if _, known := g.o.Clusters.Get(j.GetName()); !known && j.hasToken && !j.looked {
		j.looked = true
		reply, err := g.joinNew(ctx, j)
		if r := (*refusal)(nil); !errors.As(err, &r) {
			return reply, err
		}
	}
	var c v1alpha1.Cluster
	err := g.o.Client.Get(ctx, client.ObjectKey{Name: j.GetName()}, &c)
	if apierrors.IsNotFound(err) {
		return g.joinNew(ctx, j)
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", j.GetName(), err)
	}
	if key, ok := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey]); ok && key == j.key.KeyHash {
		if c.Spec.Accepted {
			return g.accepted(ctx, j, &c)
		}
		return g.pending(ctx, j, &c)
	}
	if j.vouched = j.hasToken && c.Spec.Pushed() && j.showed.Vouches(g.o.HubKey, c.Name, string(c.UID)); j.vouched {
		return g.joinPushed(ctx, j, &c)
	}
	return g.joinOver(ctx, j, &c)
}

// joinPushed lets an agent in that the hub itself runs, for a Cluster that no agent has
// joined as yet. That its Cluster is accepted, and that credentials of the member were
// given to it, is all the consent that there is to ask for. Where another key is known,
// that was another member, or the same one installed anew: an administrator must say.
func (g *Gateway) joinPushed(ctx context.Context, j *joining, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	if c.Annotations[handshake.AnnotationAgentKey] != "" {
		return g.joinOver(ctx, j, c)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[handshake.AnnotationAgentKey] = trust.SealKey(g.o.HubKey, j.GetName(), j.key.KeyHash)
	delete(c.Annotations, handshake.AnnotationNextKey)
	if err := g.o.Client.Update(ctx, c); apierrors.IsConflict(err) {
		return g.advance(ctx, j)
	} else if err != nil {
		return nil, fmt.Errorf("note the key of cluster %s: %w", c.Name, err)
	}
	g.log.Info("the agent that the hub runs for a cluster joins", "cluster", c.Name, "uid", c.UID, "key", j.key.KeyHash)
	return g.accepted(ctx, j, c)
}

// reserve a use of the token that was shown, once per call.
func (g *Gateway) reserve(ctx context.Context, j *joining) error {
	if j.token != nil || j.vouched {
		return nil
	}
	if !j.hasToken {
		return &refusal{codes.PermissionDenied, refusedToken, errors.New("the agent shows no token and a key that the hub does not know")}
	}
	t, err := g.tokens.reserve(ctx, j.showed, j.GetName(), j.key.KeyHash)
	if errors.Is(err, errToken) {
		return &refusal{codes.PermissionDenied, refusedToken, fmt.Errorf("token %s: %w", j.showed.ID, err)}
	}
	if err != nil {
		return err
	}
	j.token = &t
	return nil
}

// joinNew makes the Cluster of an agent that is new under its name.
func (g *Gateway) joinNew(ctx context.Context, j *joining) (*pb.JoinReply, error) {
	if err := g.reserve(ctx, j); err != nil {
		return nil, err
	}
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.GetName(), Labels: maps.Clone(j.token.Labels),
			Annotations: map[string]string{handshake.AnnotationAgentKey: trust.SealKey(g.o.HubKey, j.GetName(), j.key.KeyHash)},
		},
		Spec: v1alpha1.ClusterSpec{Accepted: j.token.AutoAccept, Connection: j.token.Connection()},
	}
	if j.token.Set != "" {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[handshake.LabelSet] = j.token.Set
	} else if j.token.AutoAccept {
		c.Spec.Taints = []v1alpha1.Taint{{Key: handshake.TaintUnreviewed, Effect: corev1.TaintEffectNoSchedule}}
	}
	err := g.o.Client.Create(ctx, c)
	if apierrors.IsAlreadyExists(err) {
		return g.advance(ctx, j)
	}
	if err != nil {
		return nil, fmt.Errorf("make cluster %s: %w", j.GetName(), err)
	}
	g.tokens.spend(j.showed, j.key.KeyHash)
	g.log.Info("a cluster asks to join", "cluster", c.Name, "uid", c.UID, "token", j.token.ID, "from", j.from, "key", j.key.KeyHash, "accepted", c.Spec.Accepted)
	if c.Spec.Accepted {
		return g.accepted(ctx, j, c)
	}
	return g.pending(ctx, j, c)
}

// joinOver serves an agent whose key is not the one that its Cluster knows: the
// member was installed anew, or another agent wants the name. Only an administrator
// can tell.
func (g *Gateway) joinOver(ctx context.Context, j *joining, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	key, asked := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationNextKey])
	if asked && key == j.key.KeyHash {
		return g.pending(ctx, j, c)
	}
	if err := g.reserve(ctx, j); err != nil {
		return nil, err
	}
	taken := func(told string) error {
		g.tell(c, "NameTaken", fmt.Sprintf("an agent of another machine, at %s, with the key %s and a good token, asked for the name %s and was refused: %s", j.from, j.key.KeyHash, c.Name, told))
		return &refusal{codes.AlreadyExists, told, fmt.Errorf("another agent, of key %s, asked for the name: %s", j.key.KeyHash, told)}
	}
	_, known := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey])
	switch {
	case known && !c.Spec.Accepted:
		return nil, taken("another agent has asked for the name " + c.Name + " already and waits to be accepted; choose another name, or delete that Cluster on the hub")
	case g.connected(string(c.UID)):
		return nil, taken("another agent is connected as " + c.Name + "; choose another name, or remove that cluster on the hub first")
	case asked:
		_, err := g.o.Requests.Get(ctx, handshake.RequestName(c.Name, key), metav1.GetOptions{})
		if err == nil {
			return nil, taken("another agent waits to take over " + c.Name + "; accept or deny it on the hub first")
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read the certificate request of cluster %s: %w", c.Name, err)
		}
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[handshake.AnnotationNextKey] = trust.SealKey(g.o.HubKey, c.Name, j.key.KeyHash)
	if err := g.o.Client.Update(ctx, c); apierrors.IsConflict(err) {
		return g.advance(ctx, j)
	} else if err != nil {
		return nil, fmt.Errorf("note the new key of cluster %s: %w", c.Name, err)
	}
	g.tokens.spend(j.showed, j.key.KeyHash)
	g.log.Warn("an agent with a new key asks to take over a cluster that exists", "cluster", c.Name, "uid", c.UID, "from", j.from, "key", j.key.KeyHash)
	g.tell(c, "TakeoverAsked", fmt.Sprintf("an agent at %s, with the key %s, asks to take the place of the cluster's present one; if the member was installed anew: atoll accept %s; if not, somebody has a token who should not: atoll token list", j.from, j.key.KeyHash, c.Name))
	return g.pending(ctx, j, c)
}

// tell the administrator about a Cluster, seldom the same.
func (g *Gateway) tell(c *v1alpha1.Cluster, reason, message string) {
	if g.warned.first("tell "+string(c.UID)+reason, time.Now()) {
		g.o.Tell(c, reason, message)
	}
}

// pending makes sure that the request exists, and says what it waits for.
func (g *Gateway) pending(ctx context.Context, j *joining, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	name := handshake.RequestName(c.Name, j.key.KeyHash)
	csr, err := g.o.Requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		csr, err = g.o.Requests.Create(ctx, handshake.NewRequest(c.Name, string(c.UID), j.key, int32(g.o.CertificateLifetime.Seconds())), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			csr, err = g.o.Requests.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make the certificate request of cluster %s: %w", c.Name, err)
	}
	if csr.Annotations[handshake.AnnotationUID] != string(c.UID) {
		// Left by a Cluster of the same name that is gone: a decision on it was not
		// about this one.
		if err := g.o.Requests.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(csr.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete the old certificate request %s: %w", name, err)
		}
		return g.pending(ctx, j, c)
	}
	if handshake.DecisionOn(csr) == handshake.Denied {
		return nil, status.Errorf(codes.PermissionDenied, "an administrator of the hub denied cluster %s", c.Name)
	}
	message := fmt.Sprintf("cluster %s waits to be accepted; on the hub run: atoll accept %s (key %s)", c.Name, c.Name, j.key.KeyHash)
	if c.Spec.Accepted {
		message = fmt.Sprintf("cluster %s is known with another key, so it must be accepted afresh; on the hub run: atoll accept %s (key %s)", c.Name, c.Name, j.key.KeyHash)
	}
	return &pb.JoinReply{State: statePending, ClusterUid: string(c.UID), ClusterName: c.Name, Message: message}, nil
}

// accepted issues the certificate.
func (g *Gateway) accepted(ctx context.Context, j *joining, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	t := g.o.Trust()
	cert, _, err := g.sign(t, j.key.Public, string(c.UID))
	if err != nil {
		return nil, err
	}
	g.metrics.issued.WithLabelValues("join").Inc()
	g.awaitTable(ctx, identity{uid: string(c.UID), keyHash: j.key.KeyHash}, c.Name)
	g.log.Info("issued a certificate", "cluster", c.Name, "uid", c.UID, "from", j.from)
	return &pb.JoinReply{
		State: stateAccepted, Certificate: cert, ClusterUid: string(c.UID), ClusterName: c.Name,
		HubCa: t.HubCA, Message: "cluster " + c.Name + " is accepted",
	}, nil
}

// tableTimeout bounds awaitTable.
const tableTimeout = 2 * time.Second

// awaitTable waits until the table of Clusters shows what was just written, so that
// the agent's first stream is not refused; if it takes longer the agent dials again.
func (g *Gateway) awaitTable(ctx context.Context, id identity, cluster string) {
	changed, stop := g.waiters.wait(cluster)
	defer stop()
	timeout := time.NewTimer(tableTimeout)
	defer timeout.Stop()
	for {
		if _, refused := g.admit(id); refused == nil {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// waiters wakes calls that wait for something about a Cluster.
type waiters struct {
	mu     sync.Mutex
	byName map[string]map[chan struct{}]struct{}
}

func newWaiters() *waiters { return &waiters{byName: map[string]map[chan struct{}]struct{}{}} }

// wait gives a channel that gets a value after each wake; stop must be called.
func (w *waiters) wait(name string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName[name] == nil {
		w.byName[name] = map[chan struct{}]struct{}{}
	}
	w.byName[name][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byName[name], ch)
		if len(w.byName[name]) == 0 {
			delete(w.byName, name)
		}
	}
}

func (w *waiters) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byName[name] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
