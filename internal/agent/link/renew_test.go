package link

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// forgetful is a member's store that takes no identity on the test's command.
type forgetful struct {
	Store
	mu    sync.Mutex
	fails bool
	kept  []store.Identity
}

func (f *forgetful) PutIdentity(_ context.Context, id store.Identity) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails {
		return errors.New("the member's API does not answer")
	}
	f.kept = append(f.kept, id)
	return nil
}

func (f *forgetful) fail(fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = fails
}

func (f *forgetful) lastCertificate() (certificate string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) == 0 {
		return "", 0
	}
	return string(f.kept[len(f.kept)-1].CertificatePEM), len(f.kept)
}

// renewing is an agent in a session of which only the renewing runs.
type renewing struct {
	*HubLink
	out   *outbox
	store *forgetful
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	key   *ecdsa.PrivateKey
}

func newRenewing(t *testing.T) *renewing {
	t.Helper()
	r := &renewing{store: &forgetful{}, out: newOutbox(unlimited.Unsent, func(error) {})}
	r.ca, r.caKey = newAuthority(t)
	_, r.key = newAuthority(t)
	r.HubLink = New(Options{
		Hub: "hub:1", Name: "shop", Store: r.store, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, store.StoredContents{})
	r.id = &identity{key: r.key, Identity: store.Identity{KeyPEM: keyPEM(t, r.key), HubCAPEM: []byte("x")}}
	return r
}

// giveCertificate a certificate that a hub, whose clock is ahead by skew, signs now.
func (r *renewing) giveCertificate(t *testing.T, life, skew time.Duration) error {
	t.Helper()
	now := time.Now().Add(skew)
	return r.acceptCertificate(t.Context(), signCertificate(t, r.ca, r.caKey, r.key.Public(), now.Add(-trust.Backdated), now.Add(life)), nil)
}

// countRequests counts requests for certificates since it was called last.
func (r *renewing) countRequests() (n int) {
	frames, _ := r.out.takeFrames()
	for _, f := range frames {
		if _, ok := f.GetFrame().(*pb.FromAgent_Renew); ok {
			n++
		}
	}
	return n
}

func advanceClock(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// An agent asks at half of its certificate's life, by its own clock, whatever the hub's
// says; and goes on asking, not too often, until it has another.
func TestRenewsAtHalfOfItsLife(t *testing.T) {
	for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			const life = time.Hour
			r := newRenewing(t)
			if err := r.giveCertificate(t, life, skew); err != nil {
				t.Fatal(err)
			}
			go r.renewCertificateLoop(t.Context(), r.out)
			for range 3 {
				advanceClock(life * 44 / 100)
				if n := r.countRequests(); n != 0 || !r.id.isValidAt(time.Now()) {
					t.Fatalf("skew %s: asked %d times before it was time", skew, n)
				}
				advanceClock(life * 12 / 100)
				if n, most := r.countRequests(), int(life*12/100/trust.RenewalRetryInterval(life)); n == 0 || n > most+1 {
					t.Errorf("skew %s: asked %d times", skew, n)
				}
				if err := r.giveCertificate(t, life, skew); err != nil {
					t.Fatal(err)
				}
				advanceClock(life / 10)
				if n := r.countRequests(); n > 0 {
					t.Errorf("skew %s: asked %d times after it was given another", skew, n)
				}
				if err := r.giveCertificate(t, life, skew); err != nil { // so that the next session starts from nothing
					t.Fatal(err)
				}
			}
		})
	}
}

// A member that takes no writes delays nothing, and gets the newest certificate when it answers
// again.
func TestACertificateIsStoredWhenTheMemberTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t)
		if err := r.giveCertificate(t, time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		before, _ := r.store.lastCertificate()
		r.store.fail(true)
		if err := r.giveCertificate(t, 2*time.Hour, 0); err == nil {
			t.Fatal("nothing is said of a member that takes nothing")
		}
		if !r.id.isValidAt(time.Now().Add(90 * time.Minute)) {
			t.Error("the new certificate is not used")
		}
		go r.renewCertificateLoop(t.Context(), r.out)
		advanceClock(5 * time.Minute)
		if now, _ := r.store.lastCertificate(); now != before {
			t.Error("it was stored")
		}
		r.store.fail(false)
		advanceClock(2 * time.Minute)
		now, n := r.store.lastCertificate()
		if now != string(r.id.CertificatePEM) || now == before {
			t.Error("the newest certificate was not stored")
		}
		advanceClock(10 * time.Minute)
		if _, m := r.store.lastCertificate(); m != n {
			t.Errorf("it was stored %d times more", m-n)
		}
	})
}

// Agents with an overdue certificate after a hub's absence do not all renew at once.
func TestNoStormOfRenewalsAfterAHubWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t)
		if err := r.giveCertificate(t, 24*time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if wait := r.firstRenewalDelay(now); wait < 10*time.Hour || wait > 14*time.Hour {
			t.Errorf("the first look is after %s", wait)
		}
		var parts [10]int
		for range 1000 {
			parts[int(r.firstRenewalDelay(now.Add(15*time.Hour))*10/renewSpread)]++
		}
		for i, n := range parts {
			if n < 50 || n > 200 {
				t.Errorf("%d of 1000 in minute %d", n, i)
			}
		}
		if wait := r.firstRenewalDelay(now.Add(24*time.Hour - time.Minute)); wait > 30*time.Second {
			t.Errorf("a minute before its end it waits for %s", wait)
		}
		if wait := r.firstRenewalDelay(now.Add(25 * time.Hour)); wait != 0 {
			t.Errorf("after its end it waits for %s", wait)
		}
	})
}

// Another pin of the same hub, whose new CA the agent has learnt over its stream, is no
// other hub; a strange one is.
func TestANewPinOfTheSameHub(t *testing.T) {
	first, firstKey := newAuthority(t)
	second, _ := newAuthority(t)
	stranger, _ := newAuthority(t)
	_, key := newAuthority(t)
	stored := store.Identity{
		KeyPEM: keyPEM(t, key), CertificatePEM: signCertificate(t, first, firstKey, key.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)),
		HubCAPEM: append(signedPEM(second), signedPEM(first)...), CAHash: trust.CertificateKeyHash(first), ClusterUID: "uid",
	}
	for name, c := range map[string]struct {
		pin      string
		formerly []string
		same     bool
	}{
		"the old pin":                  {trust.CertificateKeyHash(first), nil, true},
		"the new pin":                  {trust.CertificateKeyHash(second), nil, true},
		"a stranger":                   {trust.CertificateKeyHash(stranger), nil, false},
		"of a hub that was the first":  {trust.CertificateKeyHash(stranger), []string{"sha256:x", trust.CertificateKeyHash(first)}, true},
		"of one that was another once": {trust.CertificateKeyHash(stranger), []string{"sha256:x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &member{identity: stored}
			l := New(Options{Hub: "hub:1", CAHash: c.pin, FormerCAHashes: c.formerly, Name: "shop", Store: m, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, store.StoredContents{})
			id, err := l.loadOrGenerateIdentity(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if same := id.ClusterUID == "uid" && id.accepted; same != c.same || id.CAHash != c.pin {
				t.Errorf("the same is %t, for %s", same, id.CAHash)
			}
		})
	}
}

// A wrong pin costs the agent nothing: with the right one it has its identity, until another hub
// has accepted it.
func TestAMistypedPinLosesNoKey(t *testing.T) {
	ca, caKey := newAuthority(t)
	_, key := newAuthority(t)
	stored := store.Identity{
		KeyPEM: keyPEM(t, key), CertificatePEM: signCertificate(t, ca, caKey, key.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)),
		HubCAPEM: signedPEM(ca), CAHash: trust.CertificateKeyHash(ca), Hub: "hub:1", ClusterUID: "uid", ClusterName: "shop",
	}
	m := &member{identity: stored}
	as := func(pin string) *identity {
		l := New(Options{Hub: "hub:1", CAHash: pin, Name: "shop", Store: m, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
		id, err := l.loadOrGenerateIdentity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for _, pin := range []string{"sha256:mistyped", "sha256:again", "sha256:again"} {
		if id := as(pin); id.accepted || id.ClusterUID != "" || id.Former != "uid" || bytes.Equal(id.KeyPEM, stored.KeyPEM) {
			t.Errorf("for %s it is %s, known %t, before that %q", pin, id.ClusterUID, id.accepted, id.Former)
		}
	}
	if id := as(stored.CAHash); !id.accepted || !bytes.Equal(id.KeyPEM, stored.KeyPEM) || id.Before != nil || !reflect.DeepEqual(m.identity, stored) {
		t.Errorf("for its own hub it is %s, known %t; stored is %+v", id.ClusterUID, id.accepted, m.identity)
	}
}

// An agent with a new name does not wait for an answer that cannot come.
func TestAMemberIsToldThatItKeepsItsName(t *testing.T) {
	ca, caKey := newAuthority(t)
	_, key := newAuthority(t)
	stored := store.Identity{
		KeyPEM: keyPEM(t, key), CertificatePEM: signCertificate(t, ca, caKey, key.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)),
		HubCAPEM: signedPEM(ca), CAHash: trust.CertificateKeyHash(ca), ClusterUID: "uid", ClusterName: "oslo",
	}
	for name, warns := range map[string]bool{"oslo": false, "rome": true} {
		var said strings.Builder
		l := New(Options{Hub: "hub:1", CAHash: stored.CAHash, Name: name, Store: &member{identity: stored}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&said, nil))}, store.StoredContents{})
		if _, err := l.loadOrGenerateIdentity(t.Context()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said.String(), "cluster=oslo name=rome") != warns {
			t.Errorf("as %s it gets: %s", name, said.String())
		}
	}
}

// TestATokenIsNeededUntilTheIdentityIsStored: a Welcome reports that the agent is admitted only
// once the member has taken the certificate, and so does a renewed certificate.
func TestATokenIsNeededUntilTheIdentityIsStored(t *testing.T) {
	r, admitted := newRenewing(t), 0
	r.o.Admitted = func() { admitted++ }
	r.store.fail(true)
	if err := r.giveCertificate(t, time.Hour, 0); err == nil {
		t.Fatal("the member takes the certificate")
	}
	welcome := session.AgentOutput{Welcome: &pb.Welcome{}}
	if err := r.applyBlockingOutput(t.Context(), welcome, &sessionState{out: r.out}); err != nil || admitted != 0 {
		t.Fatalf("admitted %d times before its identity is stored (%v)", admitted, err)
	}
	r.store.fail(false)
	certificate := signCertificate(t, r.ca, r.caKey, r.key.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	renewed := session.AgentOutput{Renewed: &pb.Renewed{Certificate: certificate}}
	if err := r.applyBlockingOutput(t.Context(), renewed, &sessionState{out: r.out}); err != nil || admitted != 1 {
		t.Fatalf("admitted %d times after its identity is stored (%v)", admitted, err)
	}
	if err := r.applyBlockingOutput(t.Context(), welcome, &sessionState{out: r.out}); err != nil || admitted != 2 {
		t.Fatalf("admitted %d times after another Welcome (%v)", admitted, err)
	}
}

// A hub that does not know the key, since it was restored from a backup of before the agent
// joined, is asked by a new token, where the agent was given one, and by none that it has
// joined by before.
func TestAHubThatForgotTheKeyIsAskedByANewToken(t *testing.T) {
	const token = "atoll1.bbbbbbbbbb.cccccccccccccccccccccccccc"
	for what, c := range map[string]struct {
		joinedBy string
		asked    []string
	}{
		"a new token":             {"aaaaaaaaaa", []string{"", token}},
		"the one that it came by": {"bbbbbbbbbb", []string{"", "", ""}},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ca, caKey := newAuthority(t)
			h, asked := newBehind(t), []string(nil)
			h.join = func(r *pb.JoinRequest) (*pb.JoinReply, error) {
				if asked = append(asked, r.GetToken()); len(asked) == 3 {
					cancel()
				}
				if r.GetToken() == "" {
					return nil, status.Error(codes.PermissionDenied, "the join token is refused")
				}
				request, err := trust.ParseCertificateRequest(r.GetCsr())
				if err != nil {
					return nil, err
				}
				cert := signCertificate(t, ca, caKey, request.Public, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
				return &pb.JoinReply{State: "Accepted", Certificate: cert, ClusterUid: "new"}, nil
			}
			l := newLinkBefore(h, h.address)
			l.o.Store, l.o.Token, l.o.RefusedPause = &forgetful{}, token, time.Millisecond
			l.id.accepted, l.id.ClusterUID, l.id.TokenID = true, "old", c.joinedBy
			l.id.Before = &store.Identity{}
			if err := l.joinUntilAccepted(ctx); (err == nil) != (len(c.asked) == 2) {
				t.Error(err)
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("asked by %q", asked)
			}
			if len(c.asked) == 2 && (l.id.ClusterUID != "new" || l.id.TokenID != "bbbbbbbbbb" || l.id.Before != nil) {
				t.Errorf("it is %q, by token %q, and was %v", l.id.ClusterUID, l.id.TokenID, l.id.Before)
			}
		})
	}
}
