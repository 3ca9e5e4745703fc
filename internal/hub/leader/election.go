// Package leader chooses, of several hubs on one etcd, the one that decides, and
// tells each for how long it surely is in touch with the store.
//
// Contract: at most one hub's Tenure leads at any moment, by each hub's own clock,
// whatever is stopped, slow or cut off; clocks may differ, but must not run at rates
// that differ by a fifth. What a client of a Fenced configuration writes is refused
// from the moment on at which another hub may lead. An Election leads at most once. A
// hub whose Presence holds has seen the store as it was at most so long ago; it vouches
// for a revision only if up to there no other start than the one that it knows began.
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

// Of the hubs on one etcd, one leads: the one that holds this lease.
const (
	leaseNamespace = metav1.NamespaceSystem
	leaseName      = "atoll-hub"
	// leaseDuration is how long others wait for a leader that says nothing.
	leaseDuration = 9 * time.Second
	// Takeover is how long at most it takes others to begin when a leader vanishes.
	Takeover = leaseDuration + 3*renewEvery
	// renewDeadline bounds the tries of one renewal, renewEvery their distance.
	renewDeadline = 6 * time.Second
	renewEvery    = time.Second
	// tenureLength is below leaseDuration, so that a leader stops writing before
	// another one begins, whichever of their clocks runs faster.
	tenureLength = renewDeadline + renewEvery
	// watchEvery is how soon a leader sees that its own lease lapsed unnoticed.
	watchEvery = 500 * time.Millisecond
)

// Election is this hub's part in choosing the one that leads. It leads at most once:
// a hub that lost its lease ends, and what starts it again makes it a follower.
type Election struct {
	log     *slog.Logger
	tenure  *Tenure
	elector *leaderelection.LeaderElector
	won     chan struct{}
}

// New stands under the gateway's address, which people see as the lease's
// holder; Run begins.
func New(cfg *rest.Config, address string, log *slog.Logger) (*Election, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the leader's lease: %w", err)
	}
	e := &Election{log: log, tenure: newTenure(tenureLength), won: make(chan struct{})}
	lock := &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: leaseNamespace, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: address + "_" + strings.ToLower(rand.Text()[:8])},
		},
		tenure: e.tenure,
	}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: renewEvery,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(e.won) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != "" && holder != lock.Identity() {
					log.Info("another hub leads", "gateway", addressOf(holder))
				}
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("elect the hub that leads: %w", err)
	}
	return e, nil
}

// addressOf the holder of the lease.
func addressOf(holder string) string {
	address, _, _ := strings.Cut(holder, "_")
	return address
}

// Tenure of this hub; it leads once elected.
func (e *Election) Tenure() *Tenure { return e.tenure }

// Run waits until this hub is elected, then leads. It returns nil when ctx ended, the
// lease being free for others once lead has returned, and an error when lead failed or
// the lease was lost; lead's context ends at that moment.
func (e *Election) Run(ctx context.Context, lead func(context.Context) error) error {
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	var elector sync.WaitGroup
	elector.Go(func() {
		e.elector.Run(held)
		e.tenure.end()
	})
	defer elector.Wait()
	defer release()
	select {
	case <-ctx.Done():
		return nil
	case <-e.won:
	}
	e.log.Info("this hub leads: it decides from now on")
	return e.lead(ctx, lead)
}

func (e *Election) lead(ctx context.Context, lead func(context.Context) error) error {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	led := make(chan error, 1)
	go func() { led <- lead(leading) }()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case err := <-led:
			return err
		case <-watch.C:
			e.tenure.may() // sees by itself that it lapsed
		case <-e.tenure.over:
			stop()
			<-led
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("this hub lost its lease %s/%s to lead: it stops at once, so that nothing that it decides is late; started again it follows",
				leaseNamespace, leaseName)
		}
	}
}

// lease is the lock of the election; it keeps the tenure, and never asks for what a
// lapsed tenure may not have: client-go would renew, or release, what belongs to
// another hub by now.
type lease struct {
	resourcelock.Interface
	tenure *Tenure
}

// Create the lease, and hold it.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	asked := time.Now()
	if err := l.Interface.Create(ctx, r); err != nil {
		return err
	}
	l.tenure.renew(asked)
	return nil
}

// Update takes, renews or, without a holder, releases the lease.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if !l.tenure.may() {
		return ErrNotLeading
	}
	if r.HolderIdentity == "" {
		l.tenure.end()
		return l.Interface.Update(ctx, r)
	}
	asked := time.Now()
	if err := l.Interface.Update(ctx, r); err != nil {
		return err
	}
	l.tenure.renew(asked)
	return nil
}
