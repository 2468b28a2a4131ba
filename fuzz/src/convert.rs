//! Conversion: numbers become the same, however many lie together and wherever they lie.

use penstock_codec::convert::{
    Arithmetic, Decode, DecodeRules, Format, Number, Sign, TypeConversion,
};

/// `data` is both formats (one byte each), and the numbers.
pub fn fuzz_convert(data: &[u8]) {
    let Some((&[from, to], source)) = data.split_first_chunk() else {
        return;
    };
    let [from, to] = [from, to].map(|byte| Format {
        number: Number::ALL[usize::from(byte & 0x7f) % Number::ALL.len()],
        big: byte & 0x80 != 0,
    });
    check(TypeConversion::between(from, to), from, to, source);
    let rules = DecodeRules::new(Sign::Signed, Arithmetic::Wide, (0.1, 3.0), &[1.0, 7.0]);
    if let Some(decode) = Decode::new(from, to.number, rules.unwrap()) {
        check(TypeConversion::Decode(decode), from, to, source);
    }
}

fn check(change: TypeConversion, from: Format, to: Format, source: &[u8]) {
    let count = source.len() / from.size();
    let source = &source[..count * from.size()];
    assert_eq!(change.size_after(source.len()), count * to.size());

    let mut together = vec![0; count * to.size()];
    change.run(source, &mut together);
    let mut alone = vec![0xff; count * to.size()];
    for (number, place) in source
        .chunks_exact(from.size())
        .zip(alone.chunks_exact_mut(to.size()))
    {
        change.run(number, place);
    }
    assert!(together == alone, "{change:?} depends on the neighbours");

    // One byte further on, and with room for one byte more than it needs.
    let moved = [&[0], source].concat();
    let mut target = vec![0x55; count * to.size() + 2];
    change.run(&moved[1..], &mut target[1..]);
    let (first, rest) = target.split_at(1);
    let (middle, last) = rest.split_at(count * to.size());
    assert_eq!((first, last), (&[0x55][..], &[0x55][..]));
    assert!(middle == together, "{change:?} depends on the alignment");
}
