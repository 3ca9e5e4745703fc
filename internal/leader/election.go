// Package leader chooses, of several hubs on one etcd, the one that decides, and shows each for
// how long it certainly has contact to the store.
//
// Contract: at most one hub's Tenure leads at any moment, by each hub's own clock, whatever is
// stopped, slow or cut off; clocks may differ, but must not run at rates that differ by a fifth.
// Writes of a client of a Fenced configuration are refused from the moment on at which another hub
// may lead. An Election leads at most once. A hub whose Presence holds has seen the store as it
// was at most so long ago; it vouches for a revision only if up to there no other start than its
// recorded one began.
package leader

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The leader of the hubs on one etcd is the holder of this lease.
const (
	LeaseNamespace = metav1.NamespaceSystem
	LeaseName      = "atoll-hub"
	// leaseDuration is how long others wait for a leader that is silent.
	leaseDuration = 9 * time.Second
	// TakeoverTime is how long at most it takes others to begin when a leader vanishes.
	TakeoverTime = leaseDuration + 3*renewInterval
	// renewDeadline bounds the tries of one renewal, renewInterval their distance.
	renewDeadline = 6 * time.Second
	renewInterval = time.Second
	// tenureLength is below leaseDuration, so that a leader stops writing before
	// another one begins, whichever of their clocks runs faster.
	tenureLength = renewDeadline + renewInterval
	// checkInterval is how soon a leader sees that its own lease lapsed unnoticed.
	checkInterval = 500 * time.Millisecond
)

// Election is this hub's part in choosing the one that leads. It leads at most once:
// a hub that lost its lease ends, and what starts it again makes it a follower.
type Election struct {
	log     *slog.Logger
	tenure  *Tenure
	elector *leaderelection.LeaderElector
	elected chan struct{}
}

// NewElection stands under the gateway's address, which people see as the lease's
// holder; Run begins.
func NewElection(cfg *rest.Config, address string, log *slog.Logger) (*Election, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the leader's lease: %w", err)
	}
	e := &Election{log: log, tenure: newTenure(tenureLength), elected: make(chan struct{})}
	lock := &tenureLease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: LeaseNamespace, Name: LeaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: address + "_" + strings.ToLower(rand.Text()[:8])},
		},
		tenure: e.tenure,
	}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: renewInterval,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(e.elected) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != "" && holder != lock.Identity() {
					log.Info("another hub leads", "gateway", holderAddress(holder))
				}
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("elect the hub that leads: %w", err)
	}
	return e, nil
}

// holderAddress returns the address of the holder of the lease.
func holderAddress(holder string) string {
	address, _, _ := strings.Cut(holder, "_")
	return address
}

// OwnTenure returns the tenure of this hub; it leads once elected.
func (e *Election) OwnTenure() *Tenure { return e.tenure }

// Run waits until this hub is elected, then leads. It returns nil when ctx ended, the
// lease being free for others once lead has returned, and an error when lead failed or
// the lease was lost; lead's context ends at that moment.
func (e *Election) Run(ctx context.Context, lead func(context.Context) error) error {
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	var elector sync.WaitGroup
	elector.Go(func() {
		e.elector.Run(held)
		e.tenure.endTenure()
	})
	defer elector.Wait()
	defer release()
	select {
	case <-ctx.Done():
		return nil
	case <-e.elected:
	}
	e.log.Info("this hub leads: it decides from now on")
	return e.leadUntilLost(ctx, lead)
}

func (e *Election) leadUntilLost(ctx context.Context, leadUntilLost func(context.Context) error) error {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	led := make(chan error, 1)
	go func() { led <- leadUntilLost(leading) }()
	watch := time.NewTicker(checkInterval)
	defer watch.Stop()
	for {
		select {
		case err := <-led:
			return err
		case <-watch.C:
			e.tenure.mayRenew() // sees by itself that it lapsed
		case <-e.tenure.done:
			stop()
			<-led
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("this hub lost its lease %s/%s to lead: it stops at once, so that nothing that it decides is late; started again it follows",
				LeaseNamespace, LeaseName)
		}
	}
}

// tenureLease is the lock of the election; it keeps the tenure, and never requests what a lapsed
// tenure may not have: client-go would renew, or release, what belongs to
// another hub by now.
type tenureLease struct {
	resourcelock.Interface
	tenure *Tenure
}

// Get reads the lease. This hub leads no more when another one holds the lease.
func (l *tenureLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() && l.tenure.IsLeading() {
		l.tenure.endTenure()
	}
	return record, raw, err
}

// Create creates the lease and records that this hub holds it.
func (l *tenureLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	asked := time.Now()
	if err := l.Interface.Create(ctx, r); err != nil {
		return err
	}
	l.tenure.extendFrom(asked)
	return nil
}

// Update takes, renews or, without a holder, releases the lease.
func (l *tenureLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if !l.tenure.mayRenew() {
		return ErrNotLeading
	}
	if r.HolderIdentity == "" {
		l.tenure.endTenure()
		return l.Interface.Update(ctx, r)
	}
	asked := time.Now()
	if err := l.Interface.Update(ctx, r); err != nil {
		return err
	}
	l.tenure.extendFrom(asked)
	return nil
}
