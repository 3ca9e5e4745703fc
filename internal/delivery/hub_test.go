package delivery

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/payloads"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

func uidOf(n int) types.UID { return types.UID(fmt.Sprintf("uid-%04d", n)) }

// testHub is a Gateway over tables in memory, served on loopback.
type testHub struct {
	*Gateway
	t         testing.TB
	clusters  *memClusters
	rows      *memRows
	inventory *memInventory
	client    client.Client
	kube      *fake.Clientset
	keys      *keys.KeySet
	addr      string
	log       *logBuffer
	renders   atomic.Int64
	hub       atomic.Pointer[enginev1.HubState]
	revision  atomic.Int64
	rewinds   chan string
	ahead     chan string
	trust     atomic.Pointer[Trust]
	departed  chan string
	waits     chan string
	content   sync.Map // revision → func(row) atoll.Manifest
}

// logBuffer collects the log.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newTestHub(t testing.TB, adjust ...func(*Options)) *testHub {
	t.Helper()
	set, err := keys.LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	h := &testHub{
		t: t, keys: set, log: &logBuffer{}, rewinds: make(chan string, 16), ahead: make(chan string, 1024), departed: make(chan string, 16), waits: make(chan string, 16),
		clusters:  &memClusters{byName: map[string]*v1alpha1.Cluster{}, byUID: map[types.UID]string{}, online: map[string]bool{}},
		rows:      &memRows{rows: map[string]map[string]state.Row{}},
		inventory: &memInventory{up: map[string]int{}, seen: map[string][]*pb.Inventory{}, unclaimed: map[string][]string{}, known: map[string]bool{}},
		kube:      fake.NewClientset(),
	}
	h.hub.Store(&enginev1.HubState{Chain: []enginev1.ChainLink{{ID: "first", Revision: 1}}})
	h.revision.Store(10)
	f := &clusterFollower{clusters: h.clusters}
	h.client = ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).
		WithInterceptorFuncs(interceptor.Funcs{Create: f.createObject, Update: f.updateObject, Delete: f.deleteObject}).Build()
	o := Options{
		Clusters: h.clusters, Rows: h.rows, BundleRows: h.rows, Streams: h.inventory, Inventory: h.inventory, Manifests: testManifests{h},
		Client: h.client, Requests: memRequests{h.kube.CertificatesV1().CertificateSigningRequests()},
		Trust: h.trust.Load, HubKey: set.HubKey,
		Store: testStore{h}, Restore: &testRestore{rewinds: h.rewinds}, Departures: testDepartures{h},
		Version: "test", Logger: slog.New(slog.NewTextHandler(h.log, nil)), Metrics: prometheus.NewRegistry(),
		FlushAfter: 50 * time.Millisecond, JoinWait: time.Minute, // as long as a slow machine may take to accept
	}
	h.setTrust(set.FileAuthorities())
	serveAsTested(t, &o)
	for _, a := range adjust {
		a(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if h.Gateway, err = NewGateway(ctx, o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- h.ServeAgents(l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		// A connection that stays counted would use up the limit.
		closed := func(context.Context) (bool, error) { return h.metrics.connections.Load() == 0, nil }
		if wait.PollUntilContextTimeout(context.WithoutCancel(ctx), 5*time.Millisecond, time.Minute, true, closed) != nil {
			t.Errorf("%v connections are still counted", h.metrics.connections.Load())
		}
		if t.Failed() {
			t.Logf("log of the hub:\n%s", h.log)
		}
	})
	// A write between the list and the watch of the store in memory is missed.
	testwait.UntilTrue(t, "requests are watched", func() bool {
		return slices.ContainsFunc(h.kube.Actions(), func(a ktesting.Action) bool { return a.GetVerb() == "watch" })
	})
	return h
}

// setTrust what these authorities make of the hub.
func (h *testHub) setTrust(a *keys.Authorities) {
	h.trust.Store(&Trust{
		Serving: h.servingCertificateOf(a), HubCA: a.ClusterCABundlePEM(), AgentCAs: a.AgentCAPool(), SignedBy: a.AgentCAGeneration, Generation: a.Generation, Edition: a.TrustEdition(),
		Sign: func(public crypto.PublicKey, cn, org string, lifetime time.Duration) ([]byte, error) {
			return a.Agent.SignKey(public, keys.Request{CommonName: cn, Organization: []string{org}, NotBefore: time.Now(), Lifetime: lifetime})
		},
	})
}

func (h *testHub) servingCertificate() tls.Certificate {
	return h.servingCertificateOf(h.keys.FileAuthorities())
}

func (h *testHub) servingCertificateOf(a *keys.Authorities) tls.Certificate {
	cert, key, err := a.Cluster.IssueCertificate(keys.Request{
		CommonName: "gateway", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now(), Lifetime: time.Hour,
		Usages: serverAuth,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(append(cert, a.ChainPEM()...), key)
	if err != nil {
		h.t.Fatal(err)
	}
	return pair
}

func (h *testHub) signAgentKey(public crypto.PublicKey, cn, org string, lifetime time.Duration) ([]byte, error) {
	return h.keys.AgentCA.SignKey(public, keys.Request{CommonName: cn, Organization: []string{org}, NotBefore: time.Now(), Lifetime: lifetime})
}

func (h *testHub) renderRow(_ context.Context, row state.Row) (atoll.Manifest, error) {
	h.renders.Add(1)
	if fn, ok := h.content.Load(row.Spec.Revision); ok {
		return fn.(func(state.Row) (atoll.Manifest, error))(row)
	}
	if row.Spec.Phase == atoll.RowRemoving {
		return atoll.Manifest{Bundle: row.Bundle.UID, Content: "remove-" + row.Spec.Revision, Remove: true}, nil
	}
	return testManifest(row.Bundle.UID, row.Spec.Revision, "a", "b"), nil
}

// manifest with one ConfigMap per name; "name*1000" has data of 1,000 bytes. Contents
// share objects of equal names.
// testManifests renders by the hub of a test.
type testManifests struct{ h *testHub }

func (m testManifests) ReadManifestInput(_ context.Context, row state.Row) (payloads.ManifestInput, error) {
	row.Spec.UID, row.Spec.Generation = "", 0
	return payloads.ManifestInput{Bundle: row.Bundle, Row: row.Spec}, nil
}

func (m testManifests) RenderManifest(ctx context.Context, in payloads.ManifestInput) (atoll.Manifest, error) {
	return m.h.renderRow(ctx, state.Row{Bundle: in.Bundle, Spec: in.Row})
}

func testManifest(bundle, content string, names ...string) atoll.Manifest {
	m := atoll.Manifest{Bundle: bundle, Namespace: "shop", Name: bundle, Content: content}
	for _, n := range names {
		n, size, _ := strings.Cut(n, "*")
		bytes, _ := strconv.Atoi(size)
		object := json.RawMessage(fmt.Sprintf(`{"kind":"ConfigMap","metadata":{"name":%q},"data":{"x":%q}}`, n, strings.Repeat("x", bytes)))
		m.Items = append(m.Items, atoll.RenderedItem{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: n}, APIVersion: "v1", UID: "t-" + n,
			Object: object, Hash: atoll.HashParts(object),
		})
	}
	return m
}

// activeSpec row of a cluster.
func activeSpec(uid, revision string, generation int64) atoll.RowSpec {
	return atoll.RowSpec{UID: uid, Generation: generation, Revision: revision, Phase: atoll.RowActive}
}

// createToken made on the hub.
func (h *testHub) createToken(spec handshake.TokenSpec) trust.Token {
	h.t.Helper()
	if spec.Lifetime == 0 {
		spec.Lifetime = time.Hour
	}
	if spec.Uses == 0 {
		spec.Uses = 1
	}
	token := trust.NewToken()
	secret, err := handshake.NewTokenSecret(token, spec, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.client.Create(h.t.Context(), secret); err != nil {
		h.t.Fatal(err)
	}
	return token
}

// createCluster that is accepted, with an identity to dial with.
func (h *testHub) createCluster(name string) (uid string, id tls.Certificate) {
	h.t.Helper()
	key := newKey(h.t)
	hash, err := trust.KeyHash(key.Public())
	if err != nil {
		h.t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	c.Name = name
	c.Annotations = map[string]string{handshake.AnnotationAgentKey: trust.SealKeyHash(h.keys.HubKey, name, hash)}
	c.Spec.Accepted = true
	if err := h.client.Create(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
	cert, err := h.signAgentKey(key.Public(), atoll.UserClusterPrefix+string(c.UID), atoll.GroupAgents, time.Hour)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(c.UID), newKeyPair(h.t, cert, key)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pinnedClient connection, as an agent makes before it has joined.
func (h *testHub) pinnedClient() pb.RegistrationClient {
	h.t.Helper()
	cfg, err := trust.PinnedTLSConfig("127.0.0.1", trust.CertificateKeyHash(h.keys.ClusterCA.Cert), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return pb.NewRegistrationClient(h.dialHub(cfg))
}

func (h *testHub) dialHub(cfg *tls.Config, options ...grpc.DialOption) *grpc.ClientConn {
	h.t.Helper()
	conn, err := grpc.NewClient(h.addr, append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

func joinRequest(t testing.TB, token, name string, key crypto.Signer) *pb.JoinRequest {
	t.Helper()
	der, err := trust.NewCertificateRequest(key, name)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.JoinRequest{Token: token, Name: name, Csr: der, AgentVersion: "test"}
}
