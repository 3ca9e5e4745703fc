package schedule

// unweightedReason of a cluster that FilterWeights refuses.
const unweightedReason = "no entry of staticWeightList matches it, and clusters with a weight fit"

// dropUnweighted takes clusters without a static weight out of the choice while a cluster with
// a weight fits. A cluster that was chosen under the same rules stays.
func (d *groupDecider) dropUnweighted() {
	p := d.pool
	if !p.needsWeight {
		return
	}
	weighted, any := make([]bool, len(p.options)), false
	for i := range p.options {
		weight, _ := d.weigh(&p.input.Clusters[p.options[i].clusterIndex])
		weighted[i] = weight > 0
		any = any || weighted[i]
	}
	if !any {
		return
	}
	kept := 0
	for i, o := range p.options {
		if !weighted[i] && o.priority != prioLocked {
			d.refuseUnweighted(&o)
			continue
		}
		p.moveOption(i, kept)
		kept++
	}
	p.truncateOptions(kept)
}

// refuseUnweighted gives the verdict on an option without a weight.
func (d *groupDecider) refuseUnweighted(o *candidateOption) {
	c := &d.input.Clusters[o.clusterIndex]
	if o.verdictIndex == noVerdict {
		if !d.input.SkipExplanations {
			d.Verdicts = append(d.Verdicts, Verdict{Cluster: c.Name, UID: c.UID, Outcome: OutcomeOut, Filter: FilterWeights, Reason: unweightedReason})
		}
		return
	}
	row, v := d.input.Rows[c.Name], &d.Verdicts[o.verdictIndex]
	v.setNotChosen("", &row)
	if v.Filter == FilterMost {
		v.Filter, v.Reason = FilterWeights, unweightedReason
	}
}

// moveOption copies an option, with all that the pool keeps of it, to a lower number.
func (p *candidatePool) moveOption(from, to int) {
	p.options[to] = p.options[from]
	for i := range p.groups {
		p.groups[i][to] = p.groups[i][from]
	}
	if p.optionFacts != nil {
		p.optionFacts[to] = p.optionFacts[from]
	}
}

// truncateOptions keeps the first options.
func (p *candidatePool) truncateOptions(n int) {
	p.options = p.options[:n]
	for i := range p.groups {
		p.groups[i] = p.groups[i][:n]
	}
	if p.optionFacts != nil {
		p.optionFacts = p.optionFacts[:n]
	}
}
