package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// hashShift keeps the first 52 bits of a rank, which each JSON reader holds exactly.
const hashShift = 12

// autoStages are how terms divide clusters into automatic stages.
type autoStages struct {
	// sizes of all stages, and hash of what is stated.
	sizes []intstr.IntOrString
	hash  string
	// ranking of clusters for the Bundle. cut is the stored one for these sizes; nil: there is none.
	ranking schedule.ClusterRanking
	cut     *v1alpha1.StageCut
}

func compileAutoStages(r *v1alpha1.Rollout) *autoStages {
	if len(r.AutoStages) == 0 {
		return nil
	}
	sizes := r.AutoStageSizes()
	return &autoStages{sizes: sizes, hash: atoll.HashJSON(sizes)[:12]}
}

// WithStageCut returns the terms for a Bundle whose stored cut divides its clusters into automatic stages. A cut of other
// sizes counts as none. Terms without automatic stages stay the same.
func (t *Terms) WithStageCut(namespace, name string, cut *v1alpha1.StageCut) *Terms {
	if !t.HasAutoStages() {
		return t
	}
	out, auto := *t, *t.auto
	out.auto, out.stages = &auto, slices.Clone(t.stages)
	auto.ranking = schedule.NewClusterRanking(namespace + "/" + name)
	if cut == nil || cut.Hash != auto.hash || len(cut.Thresholds) != len(out.stages)-1 {
		return &out
	}
	auto.cut = cut
	below := int64(0)
	for i, threshold := range cut.Thresholds {
		if threshold <= below { // no cluster is in it, or will be
			out.stages[i].gates = nil
		}
		below = max(below, threshold)
	}
	return &out
}

// HasAutoStages reports whether Atoll chooses the clusters of the stages.
func (t *Terms) HasAutoStages() bool { return t != nil && t.auto != nil }

// isUncut reports whether the clusters are not divided into the automatic stages of a revision yet.
func (t *Terms) isUncut(revision string) bool {
	return t.HasAutoStages() && (t.auto.cut == nil || t.auto.cut.Revision != revision)
}

// hashOf returns the place of a cluster in the order of the Bundle's clusters.
func (a *autoStages) hashOf(cluster string) int64 {
	return int64(a.ranking.RankOf(cluster) >> hashShift)
}

// findStage returns the automatic stage of a cluster. One that came after the cut is in the last stage, so that it shifts no other.
func (a *autoStages) findStage(cluster string, createdAt int64) int {
	last := len(a.sizes) - 1
	if a.cut == nil || createdAt > a.cut.At.Unix() {
		return last
	}
	hash := a.hashOf(cluster)
	for i, threshold := range a.cut.Thresholds {
		if hash < threshold {
			return i
		}
	}
	return last
}

// newCut divides clusters, of which the hashes are given in order, into the stages.
func (a *autoStages) newCut(revision string, now time.Time, hashes []int64) *v1alpha1.StageCut {
	out := &v1alpha1.StageCut{Revision: revision, At: metav1.Unix(now.Unix(), 0), Hash: a.hash}
	for i := range a.sizes[:len(a.sizes)-1] {
		threshold := int64(0)
		if changed := a.countUntil(i, len(hashes)); changed > 0 {
			threshold = hashes[changed-1] + 1
		}
		out.Thresholds = append(out.Thresholds, threshold)
	}
	return out
}

// countUntil returns how many of the clusters have changed after a stage, by the sizes.
func (a *autoStages) countUntil(stage, clusters int) (n int) {
	for _, size := range a.sizes[:stage+1] {
		n = max(n, min(clusters, scaleBound(size, clusters, true)))
	}
	return n
}

// roomIn returns how many more clusters may begin to change until an automatic stage has its size. Disconnected clusters count in
// the size, so that a lost link makes no stage too large.
func (s *rolloutStep) roomIn(stage int) int {
	if !s.Terms.HasAutoStages() || stage == len(s.Terms.auto.sizes)-1 {
		return noBound
	}
	all, begun := 0, 0
	for i, n := range s.turns.Stages {
		if all += n.Clusters + n.Disconnected; i <= stage {
			begun += n.Clusters - n.Waiting
		}
	}
	return s.Terms.auto.countUntil(stage, all) - begun
}

// hasCrowdedStage reports whether clusters wait in a stage that has changed as many as its size, and none changes: clusters came
// back, or the placement chose more.
func (s *rolloutStep) hasCrowdedStage() bool {
	for i, n := range s.turns.Stages {
		switch {
		case n.Changing > 0:
			return false
		case n.Waiting > 0:
			return s.roomIn(i) <= 0
		}
	}
	return false
}

// divideCrowdedStage divides the clusters again for the same revision. Those that wait may change if they are divided so already.
func (s *rolloutStep) divideCrowdedStage(arrivals []string) {
	cut, terms := s.cutStages()
	if cut != nil && slices.Equal(cut.Thresholds, s.Terms.auto.cut.Thresholds) {
		s.turns.isDivided = true
		s.allowTurns(arrivals)
		return
	}
	s.turns.cut, s.turns.cutTerms = cut, terms
}

// cutStages returns how the connected clusters are divided into automatic stages, and the terms by which they will be; nil: nothing is
// decided while the hub cannot decide which clusters are connected. The next step reads the stored cut, and lets rows change.
func (s *rolloutStep) cutStages() (*v1alpha1.StageCut, *Terms) {
	if !s.turns.uncertainUntil.IsZero() {
		return nil, nil
	}
	var hashes []int64
	s.eachMember(func(c string) {
		if row := s.arrivalRow(c); !s.isDisconnected(row) && !(row.Suspended && s.wantsTurn(c, row)) {
			hashes = append(hashes, s.Terms.auto.hashOf(c))
		}
	})
	slices.Sort(hashes)
	terms, auto := *s.Terms, *s.Terms.auto
	auto.cut = auto.newCut(s.Revision, s.cutTime(), hashes)
	terms.auto = &auto
	return auto.cut, &terms
}

// cutTime returns the time of a cut: no earlier than each Cluster that is divided, also where the clock of the hub that created one is
// ahead.
func (s *rolloutStep) cutTime() time.Time {
	return time.Unix(max(s.nowUnix, s.NewestClusterAt), 0)
}

// describeTurn returns for what a cluster waits that is to get its first copy.
func (s *rolloutStep) describeTurn(c string) string {
	const turn = "its turn in the rollout"
	switch {
	case s.turns.cut != nil:
		return turn + ", in stage " + s.Terms.StageName(s.turns.cutTerms.StageOf(c, nil, 0))
	case s.Terms.isUncut(s.Revision):
		return turn
	}
	return turn + ", in stage " + s.Terms.StageName(s.arrivalRow(c).Stage)
}
