package peer

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/filteredwatch"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// leaseLabel marks the Leases of hubs' gateways.
	leaseLabel = "atoll.dev/gateway"
	// leaseDuration is how long a silent hub counts as living; renewEvery is how often it renews its
	// Lease.
	leaseDuration = 15 * time.Second
	renewEvery    = 4 * time.Second
	// retryEvery is the pause after a failure; it is logged after so many.
	retryEvery    = 500 * time.Millisecond
	complainAfter = 20
	// farewell bounds the deletion of this hub's Lease when it stops.
	farewell = 2 * time.Second
)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// leaseName returns the name of the Lease of the gateway at an address: one that comes back takes its own again.
func leaseName(address string) string {
	return "atoll-gateway-" + strings.Trim(notInNames.ReplaceAllString(strings.ToLower(address), "-"), "-")
}

// announceHub announces this hub until ctx ends, then take the announcement back.
func (p *HubPeers) announceHub(ctx context.Context) {
	for failed := 0; ; {
		after := renewEvery
		if err := p.renewLease(ctx); err == nil {
			failed = 0
		} else {
			after = retryEvery
			if failed++; failed == complainAfter && ctx.Err() == nil {
				p.o.Log.Warn("cannot renew the Lease by which other hubs find this one; trying on", "err", err)
			}
		}
		if !pause.WaitFor(ctx, after) {
			p.deleteLease(ctx)
			return
		}
	}
}

func (p *HubPeers) renewLease(ctx context.Context) error {
	name, now := leaseName(p.o.Address), metav1.NewMicroTime(time.Now())
	seconds := int32(leaseDuration / time.Second)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &p.self, LeaseDurationSeconds: &seconds, RenewTime: &now}
	old, err := p.o.Leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.o.Leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{leaseLabel: "true"}}, Spec: spec,
		}, metav1.CreateOptions{})
	} else if err == nil {
		old.Spec = spec
		_, err = p.o.Leases.Update(ctx, old, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", name, err)
	}
	return nil
}

// deleteLease deletes the Lease, if it is this process's still.
func (p *HubPeers) deleteLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	name := leaseName(p.o.Address)
	old, err := p.o.Leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil || old.Spec.HolderIdentity == nil || *old.Spec.HolderIdentity != p.self {
		return
	}
	err = p.o.Leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion}})
	if err != nil {
		p.o.Log.Warn("cannot delete the Lease of this hub's gateway; other hubs see that it lapses", "lease", name, "err", err)
	}
}

// foundHub is a hub whose Lease lives; Peers' lock guards it.
type foundHub struct {
	name   string
	seen   time.Time        // when a renewal was seen, by this hub's clock
	linked bool             // it answers
	conn   *grpc.ClientConn // of the call that it answers
	stop   context.CancelFunc
}

// discoverHubs discovers hubs by their Leases, and follows each hub while its Lease lives.
func (p *HubPeers) discoverHubs(ctx context.Context, following *sync.WaitGroup) error {
	changed := make(chan struct{}, 1)
	leases, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: filteredwatch.LabelSelectedSource(p.o.Leases, leaseLabel),
		ObjectType:    &coordinationv1.Lease{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { wakeup.WakeReader(changed) }, UpdateFunc: func(any, any) { wakeup.WakeReader(changed) }, DeleteFunc: func(any) { wakeup.WakeReader(changed) },
		},
	})
	following.Go(func() { controller.RunWithContext(ctx) })
	renewals := map[string]string{} // by Lease, its last content
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
		if controller.HasSynced() {
			p.reconcileHubLeases(ctx, leases.List(), renewals, following)
		}
	}
}

// reconcileHubLeases finds the living hubs by the Leases as they are now.
func (p *HubPeers) reconcileHubLeases(ctx context.Context, leases []any, renewals map[string]string, following *sync.WaitGroup) {
	now, alive := time.Now(), map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, obj := range leases {
		lease, ok := obj.(*coordinationv1.Lease)
		if !ok || lease.Spec.HolderIdentity == nil || addressOf(*lease.Spec.HolderIdentity) == p.o.Address {
			continue
		}
		name := *lease.Spec.HolderIdentity
		f := p.found[name]
		if said := fmt.Sprint(name, lease.Spec.RenewTime); renewals[lease.Name] != said {
			renewals[lease.Name] = said
			if f == nil {
				f = p.addHub(ctx, name, following)
			}
			f.seen = now
		}
		alive[name] = f != nil && now.Sub(f.seen) < leaseDuration
	}
	for name, f := range p.found {
		if !alive[name] {
			p.o.Log.Info("another hub is gone", "hub", addressOf(name))
			f.stop()
			delete(p.found, name)
			p.applyOutcome(p.union.removeHub(name), now)
		}
	}
	p.listed = true
	p.updateCompleteness()
}

// addHub adds a hub that is new. The caller holds mu.
func (p *HubPeers) addHub(ctx context.Context, name string, following *sync.WaitGroup) *foundHub {
	ctx, stop := context.WithCancel(ctx)
	f := &foundHub{name: name, stop: stop}
	p.found[name] = f
	following.Go(func() { p.followHub(ctx, f) })
	return f
}
