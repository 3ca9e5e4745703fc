package measure

import (
	"os"
	"testing"
	"time"
)

func TestProcessIsMeasured(t *testing.T) {
	begin, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if begin.Resident < 1e6 || begin.Peak < begin.Resident/2 {
		t.Errorf("resident %v, peak %v", begin.Resident, begin.Peak)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		now, err := ReadProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now.CPU > begin.CPU {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no CPU time passes while the test burns it")
		}
	}
	twice, err := ReadProcess(os.Getpid(), os.Getpid())
	if err != nil || twice.Resident < begin.Resident*3/2 {
		t.Errorf("two processes have %v, %v", twice.Resident, err)
	}
	if _, err := ReadProcess(1 << 30); err == nil {
		t.Error("a process that is not there is measured")
	}
}

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		q    float64
		want float64
	}{
		{nil, 0.5, 0}, {[]float64{3}, 0.99, 3}, {[]float64{1, 2, 3, 4}, 0.5, 2}, {[]float64{1, 2, 3, 4}, 0.51, 3},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9}, {[]float64{1, 2, 3}, 1, 3}, {[]float64{1, 2, 3}, 0, 1},
	} {
		if got := QuantileOf(c.of, c.q); got != c.want {
			t.Errorf("quantile %v of %v is %v, want %v", c.q, c.of, got, c.want)
		}
	}
}
