package script

// CPUTime that this thread has taken, for the tests outside of the package.
var CPUTime = cpuTime
