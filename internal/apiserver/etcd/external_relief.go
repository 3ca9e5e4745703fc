package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// externalCompactTimeout bounds a compaction, which waits until the pages are free. A compaction
	// that takes longer goes on in etcd.
	externalCompactTimeout = 2 * time.Minute
	// externalDefragTimeout bounds the defragmentation of one member.
	externalDefragTimeout = 5 * time.Minute
)

// externalRelief is what an External stores while etcd is full.
type externalRelief struct {
	// compacted is when a compaction last dropped history. etcd counts the freed pages at its next
	// write or in a defragmentation, and a full etcd takes no writes but deletions.
	compacted time.Time
	// defragmented is when this hub last defragmented each member, by member ID.
	defragmented map[uint64]time.Time
	// hasUnreachedAlarm: a member that no endpoint reaches has raised its alarm.
	hasUnreachedAlarm bool
	// logged are the messages that are logged once.
	logged map[string]bool
}

// relieveFull makes room in a full etcd. The first observation of a hub only compacts.
func (x *ExternalEtcd) relieveFull(ctx context.Context, revision int64) {
	isFirst := x.revision == 0
	if x.compactHistory(ctx, revision) || isFirst { // an earlier hub may have compacted and ended
		x.relief.compacted = time.Now()
	}
	if isFirst {
		return
	}
	if o, done := x.defragmentMembers(ctx); done {
		x.clearAlarms(ctx, o)
	}
}

// compactHistory drops the history up to the revision, and reports whether there was any. It is back
// when the pages are free.
func (x *ExternalEtcd) compactHistory(ctx context.Context, revision int64) (dropped bool) {
	if revision == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, externalCompactTimeout)
	defer cancel()
	_, err := x.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
		return err == nil
	}
	x.logger.Warn("could not compact the external etcd; it will be tried again", "err", err)
	return errors.Is(err, context.DeadlineExceeded)
}

// defragmentMembers defragments the members that need it, one after another, and returns the last
// observation. etcd refuses every write until then, so that a defragmentation stops reads alone. It
// is not done where a member does not answer, because that member may be in a defragmentation.
func (x *ExternalEtcd) defragmentMembers(ctx context.Context) (o memberObservation, done bool) {
	tried := map[string]bool{}
	for {
		o = x.readMembers(ctx) // another hub, or the administrator of etcd, may have made room since
		if o.silent != "" {
			x.warnOnce("a member of the full external etcd does not answer: no member is defragmented, and the alarm stays, until each answers", "endpoint", o.silent)
			return o, false
		}
		if !o.total.Alarm || o.total.QuotaBytes == 0 {
			return o, false
		}
		i := slices.IndexFunc(o.members, func(m memberUsage) bool { return !tried[m.endpoint] && x.needsDefragmentation(m, o.total) })
		if i < 0 {
			return o, true
		}
		tried[o.members[i].endpoint] = true
		if !x.defragmentMember(ctx, o.members[i]) {
			return o, false
		}
	}
}

// needsDefragmentation reports whether the file of the member keeps the alarm, and may shrink. total
// has the smallest quota.
func (x *ExternalEtcd) needsDefragmentation(m memberUsage, total StoreUsage) bool {
	if m.QuotaBytes == 0 || m.FileBytes <= percentOf(total.QuotaBytes, disarmPercent) {
		return false
	}
	if m.FileBytes-m.UsedBytes >= percentOf(m.QuotaBytes, gainPercent) {
		return true
	}
	isUncounted := x.relief.defragmented[m.id].Before(x.relief.compacted)
	return isUncounted && time.Since(x.relief.compacted) >= remeasureAfter
}

func (x *ExternalEtcd) defragmentMember(ctx context.Context, m memberUsage) bool {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, externalDefragTimeout)
	defer cancel()
	if _, err := x.client.Defragment(ctx, m.endpoint); err != nil {
		x.logger.Warn("could not defragment a member of the external etcd; it will be tried again", "endpoint", m.endpoint, "err", err)
		return false
	}
	if x.relief.defragmented == nil {
		x.relief.defragmented = map[uint64]time.Time{}
	}
	x.relief.defragmented[m.id] = begin
	x.logger.Info("defragmented a member of the external etcd", "endpoint", m.endpoint, "bytesBefore", m.FileBytes, "took", time.Since(begin))
	return true
}

// clearAlarms takes back the alarms NOSPACE of the members that the observation has, where each has
// room. It takes back no others: an alarm of a member without room would be raised again.
func (x *ExternalEtcd) clearAlarms(ctx context.Context, o memberObservation) {
	alarms, err := x.listAlarms(ctx)
	if err != nil {
		x.logger.Warn("could not list the alarms of the external etcd; it will be tried again", "err", err)
		return
	}
	x.relief.hasUnreachedAlarm = false
	for _, a := range alarms {
		switch {
		case !o.hasMember(a.MemberID):
			x.relief.hasUnreachedAlarm = true
			x.warnOnce("a member of the external etcd that --etcd-servers does not reach is full: the hub cannot take back its alarm NOSPACE. Name each member in --etcd-servers, or run etcdctl defrag for that member and then etcdctl alarm disarm",
				"member", fmt.Sprintf("%x", a.MemberID))
		case canDisarmAlarm(o.total):
			x.disarmMember(ctx, a)
		}
	}
}

// listAlarms returns the alarms NOSPACE.
func (x *ExternalEtcd) listAlarms(ctx context.Context) ([]*pb.AlarmMember, error) {
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	list, err := x.client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Alarms, func(a *pb.AlarmMember) bool { return a.Alarm != pb.AlarmType_NOSPACE }), nil
}

func (x *ExternalEtcd) disarmMember(ctx context.Context, a *pb.AlarmMember) {
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	if _, err := x.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
		x.logger.Warn("could not clear the alarm of the full external etcd; it will be tried again", "err", err)
	}
}

// warnOnce logs a message once while etcd is full.
func (x *ExternalEtcd) warnOnce(message string, args ...any) {
	if x.relief.logged[message] {
		return
	}
	if x.relief.logged == nil {
		x.relief.logged = map[string]bool{}
	}
	x.relief.logged[message] = true
	x.logger.Warn(message, args...)
}
