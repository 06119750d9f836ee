package draw

import (
	"cmp"
	"slices"
)

// maxStep is the distance of the ports of a node if there is enough room.
const maxStep = 26

// port is where an edge begins or ends at a node.
type port struct {
	route   int
	end     int     // 0: the edge begins here; 1: it ends here
	towards float64 // the x of the next stop
}

// side is the top or the bottom of a node.
type side struct {
	of     *vertex
	bottom bool
}

// ports returns the x of the two ends of each route. Ports on one side of a node are sorted by
// where their routes lead, so that no two arrows meet or cross there.
func (l *layout) ports() [][2]float64 {
	sides := map[side][]port{}
	for i, r := range l.routes {
		last := len(r.stops) - 1
		if last == 0 {
			continue
		}
		from, to := r.stops[0], r.stops[last]
		down := to.layer > from.layer
		begin, end := side{from, down}, side{to, !down}
		sides[begin] = append(sides[begin], port{i, 0, r.stops[1].x})
		sides[end] = append(sides[end], port{i, 1, r.stops[last-1].x})
	}
	x := make([][2]float64, len(l.routes))
	for s, ports := range sides {
		slices.SortStableFunc(ports, func(a, b port) int { return cmp.Compare(a.towards, b.towards) })
		step := min(maxStep, s.of.w/float64(len(ports)+1))
		for i, p := range ports {
			x[p.route][p.end] = s.of.x + (float64(i)-float64(len(ports)-1)/2)*step
		}
	}
	return x
}
