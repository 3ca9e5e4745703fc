package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Terms that state nothing have the defaults, and so have terms that are not there.
func TestDefaultsOfAFailover(t *testing.T) {
	var none *Failover
	for name, a := range map[string]*ApplicationFailover{"none": none.GetApplication(), "empty": (&Failover{Application: &ApplicationFailover{}}).GetApplication()} {
		if a.Toleration() != 5*time.Minute || a.Purge() != PurgeGracefully || a.GracePeriod() != 10*time.Minute || a.MaxAvoided() != 3 || a.Backoff(1) != 30*time.Minute {
			t.Errorf("%s: %s, %s, %s, %d, %s", name, a.Toleration(), a.Purge(), a.GracePeriod(), a.MaxAvoided(), a.Backoff(1))
		}
	}
	if none.GetApplication() != nil {
		t.Error("a policy without a failover has one")
	}
	stated := &ApplicationFailover{
		DecisionConditions: &FailoverConditions{TolerationSeconds: new(int32(20))}, GracePeriodSeconds: new(int32(30)), BackoffSeconds: new(int32(60)), MaxAvoidedClusters: new(int32(5)),
	}
	if stated.Toleration() != 20*time.Second || stated.GracePeriod() != 30*time.Second || stated.Backoff(1) != time.Minute || stated.MaxAvoided() != 5 {
		t.Errorf("%s, %s, %s, %d", stated.Toleration(), stated.GracePeriod(), stated.Backoff(1), stated.MaxAvoided())
	}
	if (&ApplicationFailover{DecisionConditions: &FailoverConditions{}}).Toleration() != 5*time.Minute {
		t.Error("conditions without a toleration have another one")
	}
}

func TestWordsOfAPurgeMode(t *testing.T) {
	for mode, want := range map[PurgeMode]PurgeMode{
		"": PurgeGracefully, PurgeGracefully: PurgeGracefully, PurgeGraciously: PurgeGracefully, PurgeDirectly: PurgeDirectly, PurgeImmediately: PurgeDirectly, PurgeNever: PurgeNever,
	} {
		if got := (&ApplicationFailover{PurgeMode: mode}).Purge(); got != want {
			t.Errorf("%q is %s, want %s", mode, got, want)
		}
	}
}

// A backoff doubles up to 6 hours, or stays as it is stated where that is longer.
func TestABackoffDoubles(t *testing.T) {
	for _, tc := range []struct {
		seconds   int32
		failovers int32
		want      time.Duration
	}{
		{60, 0, time.Minute}, {60, 1, time.Minute}, {60, 2, 2 * time.Minute}, {60, 4, 8 * time.Minute}, {60, 9, 256 * time.Minute}, {60, 10, 6 * time.Hour}, {60, 1 << 30, 6 * time.Hour},
		{21600, 1, 6 * time.Hour}, {21600, 2, 6 * time.Hour}, {604800, 1, 168 * time.Hour}, {604800, 9, 168 * time.Hour},
	} {
		if got := (&ApplicationFailover{BackoffSeconds: &tc.seconds}).Backoff(tc.failovers); got != tc.want {
			t.Errorf("%d s after %d failovers: %s, want %s", tc.seconds, tc.failovers, got, tc.want)
		}
	}
}

// The states of a cluster in the status exclude each other.
func TestStatesOfAFailoverCluster(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var none *FailoverCluster
	if none.IsClock() || none.HasFailed() || none.IsAvoided(now) {
		t.Error("a cluster that is not listed has a state")
	}
	before, later := metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now.Add(time.Minute))
	for name, tc := range map[string]struct {
		is                     FailoverCluster
		clock, failed, avoided bool
	}{
		"unhealthy":                     {FailoverCluster{UnhealthySince: &before}, true, false, false},
		"unhealthy after a failover":    {FailoverCluster{UnhealthySince: &before, AvoidedUntil: &before}, true, false, false},
		"failed":                        {FailoverCluster{UnhealthySince: &before, FailedAt: &before}, false, true, false},
		"left":                          {FailoverCluster{FailedAt: &before, AvoidedUntil: &later}, false, false, true},
		"left, and may be chosen again": {FailoverCluster{FailedAt: &before, AvoidedUntil: &before}, false, false, false},
	} {
		if tc.is.IsClock() != tc.clock || tc.is.HasFailed() != tc.failed || tc.is.IsAvoided(now) != tc.avoided {
			t.Errorf("%s: clock %t, failed %t, avoided %t", name, tc.is.IsClock(), tc.is.HasFailed(), tc.is.IsAvoided(now))
		}
	}
}
