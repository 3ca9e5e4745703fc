package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheckInOfSpec(t *testing.T) {
	every := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, x := range map[string]struct {
		connection *ClusterConnection
		want       time.Duration
	}{
		"none":        {nil, 0},
		"no type":     {&ClusterConnection{}, 0},
		"stream":      {&ClusterConnection{Type: ConnectionStream}, 0},
		"no interval": {&ClusterConnection{Type: ConnectionCheckIn}, 15 * time.Minute},
		"interval":    {&ClusterConnection{Type: ConnectionCheckIn, Interval: every(time.Hour)}, time.Hour},
		"too short":   {&ClusterConnection{Type: ConnectionCheckIn, Interval: every(-time.Second)}, 10 * time.Second},
		"too long":    {&ClusterConnection{Type: ConnectionCheckIn, Interval: every(48 * time.Hour)}, 24 * time.Hour},
	} {
		if got := (&ClusterSpec{Connection: x.connection}).CheckInInterval(); got != x.want {
			t.Errorf("%s: every %s, want %s", name, got, x.want)
		}
	}
}

func TestWhoseAgentTheHubRuns(t *testing.T) {
	for name, x := range map[string]struct {
		spec ClusterSpec
		want bool
	}{
		"nothing said":         {ClusterSpec{Accepted: true}, false},
		"pull":                 {ClusterSpec{Accepted: true, Mode: ModePull}, false},
		"push":                 {ClusterSpec{Accepted: true, Mode: ModePush}, true},
		"push, not let in yet": {ClusterSpec{Mode: ModePush}, false},
	} {
		if got := x.spec.IsPushed(); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
	}
}
