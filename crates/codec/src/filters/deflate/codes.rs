//! Huffman codes of a block: their lengths and their bits.

/// Gives each symbol the length of its code, at most `most` bits; 0 to symbols that do not occur.
///
/// At least two symbols get a code, because some decoders take no other.
pub(super) fn lengths(counts: &[u32], most: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let all = counts.iter().copied().zip(0..);
    let mut used: Vec<(u32, u16)> = Vec::with_capacity(counts.len());
    used.extend(all.filter(|(count, _)| *count > 0));
    for (symbol, count) in (0..2).zip(counts) {
        if used.len() < 2 && *count == 0 {
            used.push((1, symbol));
        }
    }
    used.sort_unstable();
    let mut of_length = [0_u32; 33];
    for depth in depths(&used) {
        of_length[depth.min(most)] += 1;
    }
    // Codes that were too long take the place of too many: shorter ones become longer.
    let mut space: u64 = (1..=most)
        .map(|length| u64::from(of_length[length]) << (most - length))
        .sum();
    while space > 1 << most {
        of_length[most] -= 1;
        let Some(shorter) = (1..most).rev().find(|length| of_length[*length] > 0) else {
            break;
        };
        of_length[shorter] -= 1;
        of_length[shorter + 1] += 2;
        space -= 1;
    }
    let mut rarest_first = used.iter();
    for length in (1..=most).rev() {
        for (_, symbol) in rarest_first.by_ref().take(of_length[length] as usize) {
            lengths[usize::from(*symbol)] = length as u8;
        }
    }
}

/// Returns the depth of each symbol in a Huffman tree; `used` has at least two, in ascending order.
fn depths(used: &[(u32, u16)]) -> Vec<usize> {
    let leaves = used.len();
    let nodes = 2 * leaves - 1;
    let mut weights: Vec<u32> = Vec::with_capacity(nodes);
    weights.extend(used.iter().map(|(count, _)| count));
    let mut parents = vec![0; nodes];
    // Inner nodes arise in ascending order, so the two lightest are at the front of two queues.
    let (mut leaf, mut inner) = (0, leaves);
    for node in leaves..nodes {
        let mut weight = 0;
        for _ in 0..2 {
            let is_leaf = leaf < leaves && (inner >= node || weights[leaf] <= weights[inner]);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            weight += weights[*next];
            parents[*next] = node;
            *next += 1;
        }
        weights.push(weight);
    }
    let mut depths = vec![0; nodes];
    for node in (0..nodes - 1).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    depths.truncate(leaves);
    depths
}

/// Some bits, the first of which is the lowest.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    pub value: u64,
    pub count: u32,
}

impl Bits {
    pub(super) fn new(value: u64, count: u32) -> Bits {
        Bits { value, count }
    }

    pub(super) fn then(self, value: u64, count: u32) -> Bits {
        Bits {
            value: self.value | value << self.count,
            count: self.count + count,
        }
    }
}

/// Returns the canonical code of each symbol.
pub(super) fn codes<const N: usize>(lengths: &[u8; N]) -> [Bits; N] {
    let mut of_length = [0_u32; 16];
    for length in lengths.iter().filter(|length| **length > 0) {
        of_length[usize::from(*length)] += 1;
    }
    let mut next = [0_u32; 16];
    for length in 1..16 {
        next[length] = (next[length - 1] + of_length[length - 1]) << 1;
    }
    let mut made = [Bits::default(); N];
    for (bits, length) in made
        .iter_mut()
        .zip(lengths)
        .filter(|(_, length)| **length > 0)
    {
        let code = &mut next[usize::from(*length)];
        let count = u32::from(*length);
        *bits = Bits::new(u64::from(code.reverse_bits() >> (32 - count)), count);
        *code += 1;
    }
    made
}
