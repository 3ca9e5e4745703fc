package console

import (
	"time"

	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/pace"
)

// The limits of sign-ins, each of which makes the hub check a token.
var (
	networkSignIns = pace.Rate{Interval: 6 * time.Second, Burst: 10}
	allSignIns     = pace.PerSecond(20, 60)
)

// The limits of sign-ins at the issuer, for each of their two steps, and those of renewals, which need a session. All people
// behind one NAT gateway are one network.
var (
	networkFlows    = pace.PerSecond(1, 60)
	allFlows        = pace.PerSecond(50, 200)
	networkRenewals = pace.PerSecond(5, 60)
	allRenewals     = pace.PerSecond(50, 200)
)

// The limits of terminals that are opened, each of which makes the hub check a token.
var (
	networkTerminals = pace.PerSecond(5, 60)
	personTerminals  = pace.Rate{Interval: 2 * time.Second, Burst: 20}
	allTerminals     = pace.PerSecond(50, 200)
)

// The limits of requests for one-time codes, each of which makes the hub check a credential.
var (
	networkCodes = pace.PerSecond(1, 30)
	personCodes  = pace.Rate{Interval: 6 * time.Second, Burst: 10}
	allCodes     = pace.PerSecond(20, 60)
)

func newCodeLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(networkCodes, allCodes)
}

func newPersonCodeLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(personCodes, allCodes)
}

func newTerminalLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(networkTerminals, allTerminals)
}

func newPersonLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(personTerminals, allTerminals)
}

func newRenewalLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(networkRenewals, allRenewals)
}

func newFlowLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(networkFlows, allFlows)
}

func newSignInLimiter() *fairness.RequestLimiter {
	return fairness.NewRequestLimiter(networkSignIns, allSignIns)
}
