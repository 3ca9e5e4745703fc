package delivery

import (
	"strings"
	"testing"
)

// overGRPC is the test whose hubs serve agents by grpc-go.
const overGRPC = "TestSessionsOverGRPC/"

// serveAsTested lets the gateway of a test under TestSessionsOverGRPC serve agents by grpc-go.
func serveAsTested(t testing.TB, o *Options) {
	if strings.HasPrefix(t.Name(), overGRPC) {
		o.AgentServer = AgentServerGRPC
	}
}

// TestSessionsOverGRPC runs tests of sessions with grpc-go in place of the own server: joins,
// orders, reports, certificates, tunnels, rivals, refusals, load balancers and half-open links.
func TestSessionsOverGRPC(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"PendingUntilAccepted":          TestPendingUntilAccepted,
		"DenyCutsOffAtOnce":             TestDenyCutsOffAtOnce,
		"RemovedClusterIsCutOff":        TestRemovedClusterIsCutOff,
		"NewestWinsAndRivalsAreLogged":  TestNewestWinsAndRivalsAreLogged,
		"SameAgentReconnects":           TestSameAgentReconnects,
		"ReportsOfOtherClusters":        TestReportsOfOtherClustersAreRefused,
		"RenderedOnce":                  TestRenderedOnce,
		"SlowAgentGetsTheLatest":        TestSlowAgentGetsTheLatest,
		"SetBackStoreIsDetected":        TestSetBackStoreIsDetected,
		"CertificateRenewal":            TestCertificateRenewal,
		"ThreeClustersOneWrite":         TestThreeClustersOneWrite,
		"StrangersAreRefused":           TestStrangersAreRefused,
		"TunnelsCarryBothWaysAtOnce":    TestTunnelsCarryBothWaysAtOnce,
		"UnreadTunnelBlocksNothingElse": TestUnreadTunnelBlocksNothingElse,
		"TunnelsEndWithTheSession":      TestTunnelsEndWithTheSession,
		"AgentsBehindBalancers":         TestAgentsBehindBalancers,
		"AgentsMoveToAnotherHub":        TestAgentsMoveToAnotherHub,
		"FloodingAgentIsDisconnected":   TestFloodingAgentIsDisconnected,
		"HalfOpenLinksAreFound":         TestHalfOpenLinksAreFound,
	} {
		t.Run(name, test)
	}
}
