package fleet

import (
	"math"
	"time"
)

// drawUniform draws a number in [0, 1) from the seed, the agent and its number of draws.
func (a *simulatedAgent) drawUniform() float64 {
	a.drawCount++
	return hashToUnit(a.sim.Seed, uint64(a.index), a.drawCount)
}

// hashToUnit hashes three numbers to a number in [0, 1) (the mixing of SplitMix64).
func hashToUnit(seed, index, n uint64) float64 {
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

// delaySpread is the sigma of the normal distribution below the lognormal delays.
const delaySpread = 0.6

// drawReadyDelay draws the delay to Ready. The caller holds mu.
func (a *simulatedAgent) drawReadyDelay() time.Duration {
	mean := a.sim.rates.Load().HealthDelay
	if mean <= 0 {
		return 0
	}
	normal := math.Sqrt(-2*math.Log(1-a.drawUniform())) * math.Cos(2*math.Pi*a.drawUniform())
	factor := math.Exp(delaySpread*normal - delaySpread*delaySpread/2)
	return time.Duration(float64(mean) * min(factor, 20))
}
