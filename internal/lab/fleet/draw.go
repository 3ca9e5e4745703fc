package fleet

import (
	"math"
	"time"
)

// draw a number from 0 to 1, 1 excluded, by the seed, the agent and how often it drew.
func (a *agent) draw() float64 {
	a.draws++
	return unit(a.sim.Seed, uint64(a.index), a.draws)
}

// unit hashes three numbers to one from 0 to 1 (the mixing of SplitMix64).
func unit(seed, index, n uint64) float64 {
	x := seed*0x9e3779b97f4a7c15 + index*0xbf58476d1ce4e5b9 + n*0x94d049bb133111eb
	for range 2 {
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return float64(x>>11) / (1 << 53)
}

// spread of the lognormal delays: sigma of the underlying normal distribution.
const spread = 0.6

// delay to Ready. The caller holds mu.
func (a *agent) delay() time.Duration {
	mean := a.sim.rates.Load().HealthDelay
	if mean <= 0 {
		return 0
	}
	normal := math.Sqrt(-2*math.Log(1-a.draw())) * math.Cos(2*math.Pi*a.draw())
	factor := math.Exp(spread*normal - spread*spread/2)
	return time.Duration(float64(mean) * min(factor, 20))
}
