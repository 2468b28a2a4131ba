use super::model::*;

const GIB: f64 = (1u64 << 30) as f64;

#[test]
fn table() {
    for host in HOSTS {
        for ranks in [1, 2, 4, 8].into_iter().filter(|n| *n <= host.gpus) {
            let (best, rate) = host.best(ranks);
            let mut lows: Vec<f64> = Vec::new();
            let mut far: Vec<f64> = Vec::new();
            let mut cost: f64 = 0.0;
            let mut last = best;
            let n = 40;
            let start = host
                .rates(&vec![
                    Simulation::new(host, ranks, 1).ranks[0]
                        .controller
                        .best();
                    ranks
                ])
                .iter()
                .sum::<f64>();
            for seed in 0..n {
                let mut s = Simulation::new(host, ranks, seed + 1);
                s.read(2.0 * GIB);
                far.push(
                    s.ranks
                        .iter()
                        .map(|r| r.settled.unwrap_or(9e9) / GIB)
                        .fold(0.0, f64::max),
                );
                s.read(6.0 * GIB);
                let moved: f64 = s.ranks.iter().map(|r| r.moved).sum();
                cost += 1.0 - moved / s.seconds / 1e9 / start;
                lows.push(s.chosen_rate() / rate);
                last = s.ranks[0].controller.best();
            }
            lows.sort_by(|a, b| a.partial_cmp(b).unwrap());
            far.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let f = (far[far.len() / 2], far[far.len() - 1]);
            println!(
                "{:40} {ranks} start {start:.1} best {best:?} {rate:.1} chosen {last:?} low {:.3} {:.3} {:.3} med {:.3} settled {f:.2?} cost {:.3}",
                host.name,
                lows[0],
                lows[2],
                lows[4],
                lows[lows.len() / 2],
                cost / n as f64
            );
        }
    }
}
