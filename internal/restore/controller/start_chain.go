package controller

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/restore"
	"atoll.dev/atoll/internal/state"
)

// RecordHubStart appends this start to the chain in the store and returns the resulting chain. If
// other hubs serve agents at the same time, the link before ends first, so that the new one begins
// past every position that they gave.
func RecordHubStart(ctx context.Context, c client.Client, etcd *clientv3.Client, restored string, several bool) (*enginev1.HubState, error) {
	resp, err := etcd.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("read the store's revision: %w", err)
	}
	s := restore.Start{ID: rand.Text(), Revision: resp.Header.Revision, Restored: restored}
	if s.Restored == "" {
		if s.Restored, err = findRevisionJump(ctx, c, etcd, s.Revision); err != nil {
			return nil, err
		}
	}
	if several {
		ended, err := updateHubState(ctx, c, func(old enginev1.HubState) enginev1.HubState { return restore.BeginStart(old, s.ID) })
		if err != nil {
			return nil, err
		}
		if s.Revision, err = strconv.ParseInt(ended.ResourceVersion, 10, 64); err != nil {
			return nil, fmt.Errorf("read the revision at which the hub's state was written: %w", err)
		}
	}
	return updateHubState(ctx, c, func(old enginev1.HubState) enginev1.HubState { return restore.AppendStart(old, s, time.Now()) })
}

// keyPageSize bounds what jumped holds in memory at a time.
const keyPageSize = 500

// leaseKeyPrefix are written by hubs that have only just found the store.
var leaseKeyPrefix = []byte("/registry/leases/")

// findRevisionJump returns why the store must have been restored with a revision bump; empty when
// it was not. Keys are looked at only where that is possible, the busiest ones
// first, and only until one is new enough.
func findRevisionJump(ctx context.Context, c client.Client, etcd *clientv3.Client, revision int64) (string, error) {
	var old enginev1.HubState
	if err := c.Get(ctx, client.ObjectKey{Name: state.HubStateName}, &old); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if !restore.NeedsKeyScan(old.Chain, revision) {
		return "", nil
	}
	reason := ""
	for _, from := range []string{"/registry/engine.atoll.dev/targetslices/", "\x00"} {
		newest := int64(0)
		for key := from; ; {
			resp, err := etcd.Get(ctx, key, clientv3.WithFromKey(), clientv3.WithKeysOnly(), clientv3.WithLimit(keyPageSize))
			if err != nil {
				return "", fmt.Errorf("look for the newest key of the store: %w", err)
			}
			for _, kv := range resp.Kvs {
				if !bytes.HasPrefix(kv.Key, leaseKeyPrefix) {
					newest = max(newest, kv.ModRevision)
				}
			}
			if reason = restore.RevisionJumpReason(newest, revision); reason == "" {
				return "", nil
			}
			if !resp.More {
				break
			}
			key = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
	return reason, nil
}

// updateHubState changes the one HubState, making it where it is missing.
func updateHubState(ctx context.Context, c client.Client, change func(enginev1.HubState) enginev1.HubState) (*enginev1.HubState, error) {
	var next enginev1.HubState
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var old enginev1.HubState
		err := c.Get(ctx, client.ObjectKey{Name: state.HubStateName}, &old)
		if apierrors.IsNotFound(err) {
			next = change(enginev1.HubState{ObjectMeta: metav1.ObjectMeta{Name: state.HubStateName}, Chain: []enginev1.ChainLink{}})
			return c.Create(ctx, &next)
		}
		if err != nil {
			return err
		}
		next = change(old)
		return c.Update(ctx, &next)
	})
	if err != nil {
		return nil, fmt.Errorf("write the hub's state: %w", err)
	}
	return &next, nil
}
