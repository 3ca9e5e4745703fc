package delivery

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
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	statePending  = "Pending"
	stateAccepted = "Accepted"
	// tokenRefusedMessage is all that an agent with a bad token gets.
	tokenRefusedMessage = "the join token is refused; the hub's log has the reason. Ask the hub's administrator for a new one (atoll token create)"
)

// joinCall is one call of Join.
type joinCall struct {
	*pb.JoinRequest
	request trust.CertificateRequest
	peer    string
	// validName is the name that the agent requests, once its form is checked.
	validName string
	// token was reserved for this call.
	token       *handshake.StoredToken
	shownToken  trust.Token
	hasToken    bool
	createTried bool // a new Cluster was tried already
	vouched     bool // the hub itself runs the agent
	// verifySignature verifies that the agent has the key of its request, once.
	verifySignature func() error
}

// Join serves one request for a certificate.
func (g *Gateway) Join(ctx context.Context, r *pb.JoinRequest) (reply *pb.JoinReply, err error) {
	err = g.serveContainingPanics(func() (err error) {
		reply, err = g.answerJoinRequest(ctx, r)
		return err
	})
	return reply, err
}

// answerJoinRequest returns the answer to a Join.
func (g *Gateway) answerJoinRequest(ctx context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	if err := g.checkServing(); err != nil {
		return nil, err
	}
	j := &joinCall{JoinRequest: r, peer: peerAddress(ctx)}
	reply, err := g.waitForDecision(ctx, j)
	if errors.Is(err, trust.ErrNoPossession) {
		err = status.Error(codes.InvalidArgument, trust.ErrNoPossession.Error())
	}
	if err == nil || status.Code(err) == codes.Canceled {
		return reply, err
	}
	reason := status.Code(err).String()
	g.metrics.refused.WithLabelValues("join", reason).Inc()
	cause := err
	var r2 *joinRefusal
	if errors.As(err, &r2) {
		cause, err = r2.cause, status.Error(r2.code, r2.agentMessage)
	}
	if log, dropped := g.strangerLog.admitLine(time.Now()); log {
		g.log.Warn("refused a join", "cluster", j.validName, "from", j.peer, "reason", reason, "err", cause, "refusalsNotLogged", dropped)
	}
	return nil, err
}

// joinRefusal has one message for the agent and another for the hub's log.
type joinRefusal struct {
	code         codes.Code
	agentMessage string
	cause        error
}

func (r *joinRefusal) Error() string              { return r.agentMessage }
func (r *joinRefusal) GRPCStatus() *status.Status { return status.New(r.code, r.agentMessage) }

// checkJoinRequest checks the form of a request: each field's size before anything is read of it, and
// the cheap fields before the certificate request. The signature is verified later, for callers
// with a good token or a key that the hub has.
func (j *joinCall) checkJoinRequest() (err error) {
	if err := session.CheckLimits(j.JoinRequest); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if bad := validation.IsDNS1123Label(j.GetName()); len(bad) > 0 {
		return status.Error(codes.InvalidArgument, "the name of the cluster is not a DNS label: "+bad[0])
	}
	j.validName = j.GetName()
	if j.GetToken() != "" {
		if j.shownToken, err = trust.ParseToken(j.GetToken()); err != nil {
			return &joinRefusal{codes.PermissionDenied, tokenRefusedMessage, err}
		}
		j.hasToken = true
	}
	if j.request, err = trust.ParseUnverifiedRequest(j.GetCsr()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	j.verifySignature = sync.OnceValue(j.request.VerifySignature)
	return nil
}

func (g *Gateway) waitForDecision(ctx context.Context, j *joinCall) (*pb.JoinReply, error) {
	if err := j.checkJoinRequest(); err != nil {
		return nil, err
	}
	changed, stop := g.waiters.subscribeToCluster(j.GetName())
	defer stop()
	timeout := time.NewTimer(g.options.JoinWait)
	defer timeout.Stop()
	for {
		reply, err := g.advanceJoin(ctx, j)
		// The first reply names what the agent must wait for, so it is sent at once.
		if err != nil || reply.GetState() == stateAccepted || j.token != nil {
			return reply, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return reply, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-g.lifetime.Done():
			return nil, status.Error(codes.Unavailable, "the hub stops; try again")
		}
	}
}

// advanceJoin does what can be done now and returns the state of the request. A name that
// the table lacks is new as a rule, so the store is not read first.
func (g *Gateway) advanceJoin(ctx context.Context, j *joinCall) (*pb.JoinReply, error) {
	if _, known := g.options.Clusters.Get(j.GetName()); !known && j.hasToken && !j.createTried {
		j.createTried = true
		reply, err := g.joinNewCluster(ctx, j)
		if r := (*joinRefusal)(nil); !errors.As(err, &r) {
			return reply, err
		}
	}
	var c v1alpha1.Cluster
	err := g.options.Client.Get(ctx, client.ObjectKey{Name: j.GetName()}, &c)
	if apierrors.IsNotFound(err) {
		return g.joinNewCluster(ctx, j)
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", j.GetName(), err)
	}
	return g.joinNamedCluster(ctx, j, &c)
}

// joinNamedCluster serves an agent by what it shows: the key of the Cluster, the token of an agent
// that the hub runs, or neither.
func (g *Gateway) joinNamedCluster(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	key, known := g.unsealAgentKeyHash(c)
	owned := known && key == j.request.KeyHash
	j.vouched = !owned && j.hasToken && c.Spec.IsPushed() && j.shownToken.VouchesFor(g.options.HubKey, c.Name, string(c.UID))
	if !owned && !j.vouched {
		return g.requestClusterTakeover(ctx, j, c)
	}
	if err := j.verifySignature(); err != nil {
		return nil, err
	}
	if j.vouched {
		return g.joinPushedCluster(ctx, j, c)
	}
	return g.replyDecision(ctx, j, c)
}

// unsealAgentKeyHash returns the hash of the key that a Cluster's agent has.
func (g *Gateway) unsealAgentKeyHash(c *v1alpha1.Cluster) (keyHash string, ok bool) {
	return trust.OpenKeyHash(g.options.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey])
}

// unsealTakeoverKeyHash returns the hash of the key by which an agent requests to take a Cluster over.
func (g *Gateway) unsealTakeoverKeyHash(c *v1alpha1.Cluster) (keyHash string, ok bool) {
	return trust.OpenKeyHash(g.options.HubKey, c.Name, c.Annotations[handshake.AnnotationNextKey])
}

// replyDecision returns what was decided about the Cluster of the requesting agent.
func (g *Gateway) replyDecision(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	if c.Spec.Accepted {
		return g.replyWithCertificate(ctx, j, c)
	}
	return g.replyPending(ctx, j, c)
}

// joinPushedCluster admits an agent that the hub itself runs, for a Cluster that no agent has
// joined yet. The Cluster is accepted and has credentials of the member; no further consent is
// needed. If another key is known, an administrator must decide: it may be another member, or the
// same one after a new installation.
func (g *Gateway) joinPushedCluster(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	if c.Annotations[handshake.AnnotationAgentKey] != "" {
		return g.requestClusterTakeover(ctx, j, c)
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[handshake.AnnotationAgentKey] = trust.SealKeyHash(g.options.HubKey, j.GetName(), j.request.KeyHash)
	delete(c.Annotations, handshake.AnnotationNextKey)
	if err := g.options.Client.Update(ctx, c); apierrors.IsConflict(err) {
		return g.advanceJoin(ctx, j)
	} else if err != nil {
		return nil, fmt.Errorf("note the key of cluster %s: %w", c.Name, err)
	}
	g.log.Info("the agent that the hub runs for a cluster joins", "cluster", c.Name, "uid", c.UID, "key", j.request.KeyHash)
	return g.replyWithCertificate(ctx, j, c)
}

// reserveTokenUse reserves one use of the token, once per call.
func (g *Gateway) reserveTokenUse(ctx context.Context, j *joinCall) error {
	if j.token != nil || j.vouched {
		return nil
	}
	if !j.hasToken {
		return &joinRefusal{codes.PermissionDenied, tokenRefusedMessage, errors.New("the agent shows no token and a key that no Cluster of the hub has")}
	}
	t, err := g.tokenUses.reserveUse(ctx, &useRequest{token: j.shownToken, name: j.GetName(), keyHash: j.request.KeyHash, verifySignature: j.verifySignature})
	if err == nil {
		err = j.verifySignature() // not done for a use that the key had reserved before
	}
	if errors.Is(err, errTokenRefused) && !errors.Is(err, trust.ErrNoPossession) {
		return &joinRefusal{codes.PermissionDenied, tokenRefusedMessage, fmt.Errorf("token %s: %w", j.shownToken.ID, err)}
	}
	if err != nil {
		return err
	}
	j.token = &t
	return nil
}

// joinNewCluster creates the Cluster of an agent whose name is new.
func (g *Gateway) joinNewCluster(ctx context.Context, j *joinCall) (*pb.JoinReply, error) {
	if err := g.reserveTokenUse(ctx, j); err != nil {
		return nil, err
	}
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.GetName(), Labels: maps.Clone(j.token.Labels),
			Annotations: map[string]string{handshake.AnnotationAgentKey: trust.SealKeyHash(g.options.HubKey, j.GetName(), j.request.KeyHash)},
		},
		Spec: v1alpha1.ClusterSpec{Accepted: j.token.AutoAccept, Connection: j.token.ClusterConnection()},
	}
	if j.token.Set != "" {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[handshake.LabelSet] = j.token.Set
	} else if j.token.AutoAccept {
		c.Spec.Taints = []v1alpha1.Taint{{Key: handshake.TaintUnreviewed, Effect: corev1.TaintEffectNoSchedule}}
	}
	err := g.options.Client.Create(ctx, c)
	if apierrors.IsAlreadyExists(err) {
		return g.advanceJoin(ctx, j)
	}
	if err != nil {
		return nil, fmt.Errorf("make cluster %s: %w", j.GetName(), err)
	}
	g.tokenUses.dropSpentUse(j.shownToken, j.request.KeyHash)
	g.log.Info("a cluster requests to join", "cluster", c.Name, "uid", c.UID, "token", j.token.ID, "from", j.peer, "key", j.request.KeyHash, "accepted", c.Spec.Accepted)
	return g.replyDecision(ctx, j, c)
}

// requestClusterTakeover serves an agent whose key is not its Cluster's: the member was
// installed again, or another agent uses the name. An administrator must decide.
func (g *Gateway) requestClusterTakeover(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	key, asked := g.unsealTakeoverKeyHash(c)
	if asked && key == j.request.KeyHash {
		if err := j.verifySignature(); err != nil {
			return nil, err
		}
		return g.replyPending(ctx, j, c)
	}
	if err := g.reserveTokenUse(ctx, j); err != nil {
		return nil, err
	}
	taken, err := g.nameTakenReason(ctx, c)
	if err != nil {
		return nil, err
	}
	if taken != "" {
		g.notifyAdmin(c, atoll.ReasonNameTaken, fmt.Sprintf("an agent of another machine, at %s, with the key %s and a good token, requested the name %s and was refused: %s", j.peer, j.request.KeyHash, c.Name, taken))
		return nil, &joinRefusal{codes.AlreadyExists, taken, fmt.Errorf("another agent, of key %s, requested the name: %s", j.request.KeyHash, taken)}
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[handshake.AnnotationNextKey] = trust.SealKeyHash(g.options.HubKey, c.Name, j.request.KeyHash)
	if err := g.options.Client.Update(ctx, c); apierrors.IsConflict(err) {
		return g.advanceJoin(ctx, j)
	} else if err != nil {
		return nil, fmt.Errorf("note the new key of cluster %s: %w", c.Name, err)
	}
	g.tokenUses.dropSpentUse(j.shownToken, j.request.KeyHash)
	g.log.Warn("an agent with a new key requests to take over a cluster that exists", "cluster", c.Name, "uid", c.UID, "from", j.peer, "key", j.request.KeyHash)
	g.notifyAdmin(c, atoll.ReasonTakeoverAsked, fmt.Sprintf("an agent at %s, with the key %s, requests to replace the cluster's present one; if the member was installed again: atoll accept %s; if not, a token has leaked: atoll token list", j.peer, j.request.KeyHash, c.Name))
	return g.replyPending(ctx, j, c)
}

// nameTakenReason returns why an agent of another key cannot have the name of a Cluster; empty: it
// may request it.
func (g *Gateway) nameTakenReason(ctx context.Context, c *v1alpha1.Cluster) (string, error) {
	if _, known := g.unsealAgentKeyHash(c); known && !c.Spec.Accepted {
		return "another agent has requested the name " + c.Name + " already and waits to be accepted; choose another name, or delete that Cluster on the hub", nil
	}
	if g.isConnectedToAnyHub(string(c.UID)) {
		return "another agent is connected as " + c.Name + "; choose another name, or remove that cluster on the hub first", nil
	}
	key, asked := g.unsealTakeoverKeyHash(c)
	if !asked {
		return "", nil
	}
	_, err := g.options.Requests.Get(ctx, handshake.RequestName(c.Name, key), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the certificate request of cluster %s: %w", c.Name, err)
	}
	return "another agent waits to take over " + c.Name + "; accept or deny it on the hub first", nil
}

// notifyAdmin reports an event about a Cluster, and repeats of it only now and then.
func (g *Gateway) notifyAdmin(c *v1alpha1.Cluster, reason atoll.Reason, message string) {
	if g.warnings.TakeToken("tell "+string(c.UID)+string(reason), time.Now()) {
		g.options.NotifyAdmin(c, reason, message)
	}
}

// replyPending creates the certificate request if it is missing, and returns what the
// agent waits for.
func (g *Gateway) replyPending(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	name := handshake.RequestName(c.Name, j.request.KeyHash)
	csr, err := g.options.Requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		csr, err = g.options.Requests.Create(ctx, handshake.NewRequest(c.Name, string(c.UID), j.peer, j.request, int32(g.options.CertificateLifetime.Seconds())), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			csr, err = g.options.Requests.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make the certificate request of cluster %s: %w", c.Name, err)
	}
	if csr.Annotations[handshake.AnnotationUID] != string(c.UID) {
		// A deleted Cluster of the same name left the request. A decision on it was not
		// about this Cluster.
		if err := g.options.Requests.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(csr.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete the old certificate request %s: %w", name, err)
		}
		return g.replyPending(ctx, j, c)
	}
	if handshake.DecisionOn(csr) == handshake.Denied {
		return nil, status.Errorf(codes.PermissionDenied, "an administrator of the hub denied cluster %s", c.Name)
	}
	message := fmt.Sprintf("cluster %s waits to be accepted; on the hub run: atoll accept %s (key %s)", c.Name, c.Name, j.request.KeyHash)
	if c.Spec.Accepted {
		message = fmt.Sprintf("cluster %s is known with another key, so it must be accepted again; on the hub run: atoll accept %s (key %s)", c.Name, c.Name, j.request.KeyHash)
	}
	return &pb.JoinReply{State: statePending, ClusterUid: string(c.UID), ClusterName: c.Name, Message: message}, nil
}

// replyWithCertificate issues the certificate.
func (g *Gateway) replyWithCertificate(ctx context.Context, j *joinCall, c *v1alpha1.Cluster) (*pb.JoinReply, error) {
	t := g.options.Trust()
	cert, _, err := g.signCertificate(t, j.request.Public, string(c.UID))
	if err != nil {
		return nil, err
	}
	g.metrics.issued.WithLabelValues("join").Inc()
	g.waitForClusterTable(ctx, identity{uid: string(c.UID), keyHash: j.request.KeyHash}, c.Name)
	g.log.Info("issued a certificate", "cluster", c.Name, "uid", c.UID, "from", j.peer)
	return &pb.JoinReply{
		State: stateAccepted, Certificate: cert, ClusterUid: string(c.UID), ClusterName: c.Name,
		HubCa: t.HubCA, Message: "cluster " + c.Name + " is accepted",
	}, nil
}

// tableTimeout bounds waitForClusterTable.
const tableTimeout = 2 * time.Second

// waitForClusterTable waits until the table of Clusters shows what was just written, so
// that the agent's first session is not refused. After tableTimeout the agent must dial
// again.
func (g *Gateway) waitForClusterTable(ctx context.Context, id identity, cluster string) {
	changed, stop := g.waiters.subscribeToCluster(cluster)
	defer stop()
	timeout := time.NewTimer(tableTimeout)
	defer timeout.Stop()
	for {
		if _, refused := g.admitIdentity(id); refused == nil {
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

// clusterWaiters wakes calls that wait for a change of a Cluster.
type clusterWaiters struct {
	mu     sync.Mutex
	byName map[string]map[chan struct{}]struct{}
}

func newClusterWaiters() *clusterWaiters {
	return &clusterWaiters{byName: map[string]map[chan struct{}]struct{}{}}
}

// subscribeToCluster returns a channel that gets a value after each wake. stop must be called.
func (w *clusterWaiters) subscribeToCluster(name string) (changed <-chan struct{}, stop func()) {
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
		if delete(w.byName[name], ch); len(w.byName[name]) == 0 {
			delete(w.byName, name)
		}
	}
}

func (w *clusterWaiters) wakeAll(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byName[name] {
		wakeup.WakeReader(ch)
	}
}
